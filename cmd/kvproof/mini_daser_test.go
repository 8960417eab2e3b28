package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Other people's clients get the whole way: upload, infer, check, and nothing
// is left behind.
func TestMiniServesDaseR(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	disk := t.TempDir()
	out, ready := io.Pipe()
	code := make(chan int)
	var errs bytes.Buffer
	go func() {
		code <- run(ctx, []string{
			"mini", "-model=nano", "-addr=127.0.0.1:0", "-daseraddr=127.0.0.1:0", "-row=daser-chunk", "-blocksize=16",
			"-l1=4mib", "-l2dir=" + disk, "-l2=8mib", "-unsafe",
		}, ready, &errs)
		_ = ready.Close()
	}()
	var daser, announced string
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "try"); {
		_, _ = fmt.Sscanf(lines.Text(), "daser   %s", &daser)
		announced += lines.Text() + "\n"
	}
	require.Contains(t, announced, daser+"/debug/kvcheck?on=true")
	require.Contains(t, announced, daser+"/documents")

	status, _ := post(t, daser+"/debug/kvcheck?on=true", "")
	require.Equal(t, http.StatusOK, status)
	status, answer := post(t, daser+"/documents", `{"title":"a","text":"w8 w9 w10 w11"}`)
	require.Equal(t, http.StatusCreated, status, answer)
	var document struct {
		ID string `json:"doc_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &document))
	files, err := os.ReadDir(disk)
	require.NoError(t, err)
	require.Len(t, files, 1, "L2 has a directory of its own")

	status, answer = post(t, daser+"/infer", fmt.Sprintf(`{"doc_ids":[%q],"task":"w12 w13"}`, document.ID))
	require.Equal(t, http.StatusOK, status, answer)
	require.Contains(t, answer, `"cache_enabled":true,"cache_hits":[{"chunk_key":`)
	_, report := get(t, daser+"/debug/kvcheck")
	require.Contains(t, report, `"on":true,"chunks":2,`)
	require.Contains(t, report, `"damaged":0`)
	_, metrics := get(t, daser+"/metrics")
	require.Contains(t, metrics, "daser_l1_bytes_capacity 4.194304e+06")
	require.Contains(t, metrics, "daser_store_l2_bytes_capacity 8.388608e+06")

	end()
	require.Equal(t, exitOK, <-code, errs.String())
	requireFree(t, daser)
	files, err = os.ReadDir(disk)
	require.NoError(t, err)
	require.Empty(t, files)
}
