//go:build !race

package kvsum

const raceEnabled = false
