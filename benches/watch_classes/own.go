// A thread `control` that works each 10 ms; in one of ten cycles Planner.replan takes 5 ms. See classes.c for what it prints.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
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

func monotonic() int64 {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func main() {
	cycles, _ := strconv.Atoi(os.Args[1])
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
		runtime.LockOSThread()
		text := append([]byte("control"), 0)
		syscall.RawSyscall(syscall.SYS_PRCTL, 15, uintptr(unsafe.Pointer(&text[0])), 0)
		priority := int32(50)
		syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&priority)))
		begin := monotonic() + 500_000_000
		took := make([]int64, 0, cycles)
		for n := 0; n < cycles; n++ {
			due := begin + int64(n)*10_000_000
			until := syscall.NsecToTimespec(due)
			syscall.Syscall6(syscall.SYS_CLOCK_NANOSLEEP, 1, 1, uintptr(unsafe.Pointer(&until)), 0, 0, 0)
			p.update(n)
			took = append(took, monotonic()-due)
		}
		fmt.Print(syscall.Gettid(), " ", cycles)
		for _, one := range took {
			fmt.Print(" ", one)
		}
		fmt.Println("\ndone")
		done <- true
	}()
	<-done
	time.Sleep(time.Second)
}
