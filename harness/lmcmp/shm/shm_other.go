//go:build !linux

package shm

// Create makes a segment; see the Linux version.
func Create(int) (*Segment, error) { return nil, ErrUnsupported }

// CreateNamed makes a segment under a name; see the Linux version.
func CreateNamed(string, int) (*Segment, error) { return nil, ErrUnsupported }

// Open maps a segment; see the Linux version.
func Open(string, int) (*Segment, error) { return nil, ErrUnsupported }

// Populate faults every page in.
func (s *Segment) Populate() error { return ErrUnsupported }

// PopulateRange faults the pages of n bytes at offset in.
func (s *Segment) PopulateRange(offset, n int) error { return ErrUnsupported }

// Unlink removes the name.
func (s *Segment) Unlink() error { return ErrUnsupported }

// Close unmaps the segment.
func (s *Segment) Close() error { return nil }

// Free is the number of bytes that new segments can take.
func Free() (int64, error) { return 0, ErrUnsupported }

// Sweep removes what processes left behind.
func Sweep() ([]string, error) { return nil, nil }

// List is the names of all segments.
func List() ([]string, error) { return nil, nil }

// Own is the names of this process's segments.
func Own() ([]string, error) { return nil, nil }
