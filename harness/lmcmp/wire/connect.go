package wire

import "context"

// Connect dials now, so that a first call does not pay for it.
func (d *Dealer) Connect(ctx context.Context) error {
	_, err := d.connect(ctx)
	return err
}

func (d *Dealer) connect(ctx context.Context) (*Conn, error) {
	d.dialing.Lock()
	defer d.dialing.Unlock()
	d.mu.Lock()
	conn, closed := d.conn, d.closed
	d.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if conn != nil {
		return conn, nil
	}
	conn, err := Dial(ctx, d.endpoint)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = conn.Close()
		return nil, ErrClosed
	}
	d.conn = conn
	return conn, nil
}
