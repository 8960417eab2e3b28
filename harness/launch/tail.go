package launch

import (
	"bytes"
	"io"
	"os"
	"strings"
)

const (
	tailLines = 20      // of a log, in an error
	tailBytes = 1 << 16 // that are looked at for them
	lineBytes = 500     // of one line
)

// tail returns the last lines of a file, without those that are empty. A file
// that cannot be read has none: the error that wants them is the one to show.
func tail(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	start := max(0, size-tailBytes)
	data, err := io.ReadAll(io.NewSectionReader(f, start, size-start))
	if err != nil {
		return nil
	}
	lines := logLines(data)
	if start > 0 && len(lines) > 1 {
		lines = lines[1:] // begins in its middle
	}
	return lines[max(0, len(lines)-tailLines):]
}

func logLines(data []byte) (lines []string) {
	for line := range bytes.Lines(data) {
		if text := strings.TrimRight(string(line), "\r\n\t "); text != "" {
			if len(text) > lineBytes {
				text = strings.ToValidUTF8(text[:lineBytes], "") + " …"
			}
			lines = append(lines, text)
		}
	}
	return lines
}

// A follower reads what was added to a log since it looked last.
type follower struct {
	path   string
	offset int64
	rest   []byte // of a line that is not complete
}

// fresh returns the complete lines that are new.
func (f *follower) fresh() []string {
	file, err := os.Open(f.path)
	if err != nil {
		return nil
	}
	defer file.Close()
	data, err := io.ReadAll(io.NewSectionReader(file, f.offset, 1<<62-f.offset))
	if err != nil {
		return nil
	}
	f.offset += int64(len(data))
	data = append(f.rest, data...)
	end := bytes.LastIndexByte(data, '\n') + 1
	f.rest = bytes.Clone(data[end:])
	return logLines(data[:end])
}
