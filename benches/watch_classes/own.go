// A thread `control` that works each 10 ms; in one of ten cycles Planner.replan takes 5 ms. See classes.c for what it prints.
package main

import (
	"os"
	"strconv"
	"time"
)

type planner struct{ rounds, value uint64 }

//go:noinline
func (p *planner) replan() {
	now := p.value
	for left := p.rounds; left > 0; left-- {
		now = now*2862933555777941757 + 3
	}
	p.value = now
}

//go:noinline
func (p *planner) filter() {
	now := p.value
	for left := p.rounds / 25; left > 0; left-- {
		now = now*6364136223846793005 + 1
	}
	p.value = now
}

//go:noinline
func (p *planner) update(n int) {
	p.filter()
	if n%10 == 5 {
		p.replan()
	}
	p.value++
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	p := planner{rounds: 1000000}
	best := int64(1 << 62)
	for n := 0; n < 5; n++ {
		from := monotonic()
		p.replan()
		best = min(best, monotonic()-from)
	}
	p.rounds = p.rounds * 5000000 / uint64(best)
	done := make(chan bool)
	go func() {
		named("control")
		realTime()
		printLog(cycles(count, p.update))
		done <- true
	}()
	<-done
	time.Sleep(time.Second)
}
