// Package wire is the protocol between an engine and LMCache's multiprocess
// cache server, from both ends: ZMTP frames over TCP, requests and replies in
// msgpack, and what differs between releases (a [Dialect]).
//
//	dealer := wire.NewDealer("tcp://127.0.0.1:5555", dialect, 10*time.Second)
//	defer dealer.Close()
//	var chunk int
//	_, err := dealer.Call(ctx, &wire.GetChunkSize{}, &chunk)
//
// A request is a message of frames: a number that the reply repeats, the
// operation, and one msgpack document for each payload. The server never
// reports an error: what it refuses, it logs and does not answer. So every
// call has a deadline, and requests are checked before they are sent.
//
// # Why the sockets are written by hand
//
// The protocol needs one socket type on each side and no security mechanism.
// A library's socket hides what a benchmark has to see: go-zeromq/zmq4 waits
// 2.5 s for a port that is closed, keeps accepting sends after the peer has
// died, and has no deadline for a write. It stays in the tests, as an
// independent other end.
//
// Source: observed on servers of LMCache 0.4.7, 0.5.2, 0.5.4, 0.5.5 and 0.5.6
// and in frames recorded from its own clients (testdata); ZMTP is
// https://rfc.zeromq.org/spec/23/.
package wire
