// Package larder is a client of memcached's protocol: for Larder, memcached from 1.4 on, and proxies that speak it.
//
// All callers of a server share one pipelined connection. There is no pool to size: 256 goroutines use one connection and few
// system calls. A client is safe for all goroutines, and made once.
//
//	cache := larder.New("127.0.0.1:11211")
//	defer cache.Close()
//	err := cache.Set(ctx, "greeting", []byte("hello"), time.Minute)
//	value, err := cache.Get(ctx, "greeting", nil)
//	if errors.Is(err, larder.ErrMiss) { … }
//
// Get, Set, Delete, Incr and Touch allocate nothing if the value fits the given slice. Every call ends within Config.Timeout,
// including waiting for a connection or for room in it. A context can only shorten that.
//
// An error is a sentinel, or an [*Error] around one. [Fault] says whose fault it is. [Applied] says what has to be known after a
// failed write: whether it may have been carried out.
package larder
