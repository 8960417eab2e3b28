// Package lmcmp is a client of LMCache's multiprocess cache server: what an
// engine does with it, without an engine. It finds out which release it talks
// to, hands over paged KV memory, looks prompts up, stores and retrieves them,
// and says byte by byte whether what came back is what was stored.
//
//	server, err := lmcmp.Discover(ctx, lmcmp.Endpoints{RPC: "tcp://127.0.0.1:5555", HTTP: "http://127.0.0.1:8080"}, "")
//	shape, err := lmcmp.ParseShape("(2,64,16,8,64):float16:4")
//	client, err := server.Connect(ctx, lmcmp.Config{Shape: shape, Transfer: lmcmp.EngineDriven})
//	defer client.Close(ctx)
//	request := client.Request("r-1", tokens)
//	hits, err := client.Lookup(ctx, request)          // chunks
//	err = client.Store(ctx, request, 0, chunks, blocks)
//	err = client.Retrieve(ctx, request, 0, hits, blocks)
//
// # Transfers
//
// In engine_driven mode the server owns a pool of shared memory and the client
// copies. In lmcache_driven mode the client's paged memory is shared and the
// server copies; that memory is POSIX shared memory, or device memory that
// comes in as a [Memory].
//
// Source: observed on LMCache 0.4.7, 0.5.2, 0.5.4, 0.5.5 and 0.5.6.
package lmcmp
