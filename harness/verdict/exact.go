package verdict

import "math"

// signTest is the exact one-sided p-value of McNemar's test: how likely it is
// that at least here of here+there discordant pairs speak against this side,
// where either side is as likely. 1 without any.
func signTest(here, there int) float64 {
	n := here + there
	p := 0.0
	for k := here; k <= n; k++ {
		p += math.Exp(logChoose(n, k) - float64(n)*math.Ln2)
	}
	return min(1, p)
}

// fisherTest is the exact one-sided p-value of Fisher's test: how likely it is
// that at least a of the a+c events fall among the n of this side, with the
// others among the m of that side.
func fisherTest(a, n, c, m int) float64 {
	events := a + c
	p := 0.0
	for k := a; k <= min(events, n); k++ {
		if events-k <= m {
			p += math.Exp(logChoose(n, k) + logChoose(m, events-k) - logChoose(n+m, events))
		}
	}
	return min(1, p)
}

func logChoose(n, k int) float64 {
	lg := func(x int) float64 {
		v, _ := math.Lgamma(float64(x + 1))
		return v
	}
	return lg(n) - lg(k) - lg(n-k)
}
