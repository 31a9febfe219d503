// A thread `control` that works each 10 ms while another goroutine stops the world or collects. See classes.c for what it prints.
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

const period = 10_000_000

var live [][]byte
var took []int64
var sink []byte

func named(name string) {
	runtime.LockOSThread()
	text := append([]byte(name), 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, 15, uintptr(unsafe.Pointer(&text[0])), 0)
}

func monotonic() int64 {
	var now syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func sleepUntil(ns int64) {
	until := syscall.NsecToTimespec(ns)
	syscall.Syscall6(syscall.SYS_CLOCK_NANOSLEEP, 1, 1, uintptr(unsafe.Pointer(&until)), 0, 0, 0)
}

func main() {
	kind := os.Args[1]
	cycles, _ := strconv.Atoi(os.Args[2])
	for n := 0; n < 20000; n++ {
		go func() { select {} }()
	}
	done := make(chan bool)
	go func() {
		named("stopper")
		buffer := make([]byte, 16<<20)
		for {
			time.Sleep(97 * time.Millisecond)
			if kind == "go-stop" {
				runtime.Stack(buffer, true)
			} else {
				for n := 0; n < 200; n++ {
					live = append(live, make([]byte, 65536))
				}
				if len(live) > 2000 {
					live = nil
				}
				runtime.GC()
			}
		}
	}()
	go func() {
		named("control")
		priority := int32(50)
		syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&priority)))
		begin := monotonic() + 500_000_000
		for n := 0; n < cycles; n++ {
			due := begin + int64(n)*period
			sleepUntil(due)
			sink = make([]byte, 4096)
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
