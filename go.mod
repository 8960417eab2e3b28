module github.com/kvproof/kvproof

go 1.26.0

require (
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/common v0.74.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/perf v0.0.0-20260908200009-22c9c6c9d4da // indirect
	golang.org/x/sync v0.25.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
)
