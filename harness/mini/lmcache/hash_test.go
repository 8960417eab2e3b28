package lmcache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Names of files that LMCache 0.5.6 wrote for two prompts of its own bench
// client, token s and then 9906 seven times, with a chunk of 4.
func TestFileNamesAreUpstreams(t *testing.T) {
	var names []string
	for s := range uint32(2) {
		k := key("r", prompt(1+s, 8)...)
		for _, row := range rows(&k, hashChunks(k.Tokens, 4, 8), 1) {
			names = append(names, row[0].fileName())
		}
	}
	require.ElementsMatch(t, []string{
		"test-model@0x01000100@0@19867a631ff0e393014536f760ea9528de7bbf7d9eb30918b2659645543a7325.data",
		"test-model@0x01000100@0@4579d71c7a7386848ecedd09b8fd358285c3b15ff8bcf8e494d34593d3652daf.data",
		"test-model@0x01000100@0@88c53d16e83bf0bcf1c25b0ca9f22cac469084886e3be86b258684890aa7471e.data",
		"test-model@0x01000100@0@8b3b821b5a2e59e94b880ce8d8920343b9cc373a613fc693e04e53d40945befc.data",
	}, names)
	salted := objectKey{model: "org/name", rank: rankOf(2, 1), group: 10, salt: "s"}
	require.Equal(t, "org-SEP-name@0x02010201@a@0000000000000000000000000000000000000000000000000000000000000000@s.data", salted.fileName())
}

func TestHashesAreAChain(t *testing.T) {
	base := hashChunks(prompt(1, 12), 4, 12)
	require.Len(t, base, 3)
	require.Equal(t, base[:2], hashChunks(prompt(1, 12), 4, 11), "whole chunks of the first tokens")
	require.Equal(t, base, hashChunks(prompt(1, 15), 4, 99))
	other := hashChunks(prompt(2, 12), 4, 12)
	for i := range base {
		require.NotEqual(t, base[i], other[i], "chunk %d: all tokens before it count", i)
	}
	require.Empty(t, hashChunks(nil, 4, 0))
}
