package mini_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvproof/kvproof/harness/mini"
	"github.com/kvproof/kvproof/harness/mini/model"
)

func TestCalibrate(t *testing.T) {
	m, err := model.New(model.Nano())
	require.NoError(t, err)
	s, err := mini.Calibrate(t.Context(), m)
	require.NoError(t, err)
	require.Positive(t, s.Prefill)
	require.Positive(t, s.Decode)

	// Estimates are in the proportion of the work, whatever the speed.
	require.InEpsilon(t, float64(m.FLOPs(0, 800))/float64(m.FLOPs(0, 200)), float64(s.EstimatePrefill(800))/float64(s.EstimatePrefill(200)), 1e-3)
	require.InEpsilon(t, float64(m.FLOPs(0, 800))/s.Prefill, s.EstimatePrefill(800).Seconds(), 1e-3)
	require.Equal(t, s.EstimatePrefill(800), s.EstimateHit(800, 0))
	require.InEpsilon(t, float64(m.FLOPs(400, 400))/s.Prefill, s.EstimateHit(800, 400).Seconds(), 1e-3)
	require.InEpsilon(t, float64(m.FLOPs(10, 1)+m.FLOPs(11, 1))/s.Decode, s.EstimateDecode(10, 2).Seconds(), 1e-2)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = mini.Calibrate(ctx, m)
	require.ErrorIs(t, err, context.Canceled)
}

// A context shorter than what Calibrate likes to measure is no error.
func TestCalibrateAShortContext(t *testing.T) {
	c := model.Nano()
	c.Context = 20
	m, err := model.New(c)
	require.NoError(t, err)
	_, err = mini.Calibrate(t.Context(), m)
	require.NoError(t, err)
}
