// Package lmcache is a cache server that speaks LMCache's wire: what an engine
// or a benchmark finds behind tcp://host:port is, request for request, what
// LMCache's multiprocess server of a given release would be, made in Go, in
// this process, and breakable on purpose (see [Fault]).
//
//	s, err := lmcache.Start(ctx, lmcache.Config{Addr: "127.0.0.1:5555", HTTPAddr: "127.0.0.1:8080", Chunk: 256})
//	defer s.Close(context.WithoutCancel(ctx))
//	err = s.Plant(lmcache.CorruptByte)
//
// # What is modelled
//
// Both transfers between a client and a server without a GPU: lmcache_driven,
// where the server copies between the client's shared memory and its own, and
// engine_driven, where the client copies from and to a pool of the server.
// Chunks under a rolling BLAKE3 hash with model, rank, group and salt; read
// locks that a lookup takes and a retrieve releases; stores that are answered
// before they are readable; the block that means no block; an L1 with LRU and a
// watermark, an L2 of unverified files under upstream's names; the routes and
// counters of the HTTP side. What a server refuses it logs and does not answer.
//
// Left out: other devices than the CPU, pickled transfers without a pool,
// CacheBlend, peers, sliding windows, reaping of silent workers. The tensors of
// a registration are read as its hint says in every release, though those
// before 0.5.5 read them otherwise on a CPU: that shows only in the order of
// the bytes in L1. A lookup is complete when it is answered. A message of one
// frame is dropped like any other that cannot be read; upstream, it ends the
// service for everybody.
//
// Source: observed on servers of LMCache 0.4.7, 0.5.2, 0.5.4, 0.5.5 and 0.5.6,
// and read in 0.5.6 where it could not be observed.
package lmcache
