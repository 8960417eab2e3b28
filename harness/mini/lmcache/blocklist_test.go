package lmcache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlockList(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int
		ok   bool
	}{
		{"5", []int{5}, true},
		{"0,[2,5],8", []int{0, 2, 3, 4, 5, 8}, true},
		{"[2,3]", []int{2, 3}, true},
		{"", nil, true},
		{"[2,3", nil, false},
		{"[5,2]", nil, false},
		{"1,x", nil, false},
		{"[0,99999999]", nil, false},
	} {
		got, err := blockList(c.text)
		require.Equal(t, c.ok, err == nil, "blockList(%q): %v", c.text, err)
		if c.ok {
			require.Equal(t, c.want, got, "blockList(%q)", c.text)
		}
	}
}
