// What the programs in Go share. Each is built with its own file and this one.
package main

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

const period = 10_000_000

// The calling goroutine gets a thread of its own with that name.
func named(name string) {
	runtime.LockOSThread()
	text := append([]byte(name), 0)
	syscall.RawSyscall(syscall.SYS_PRCTL, 15, uintptr(unsafe.Pointer(&text[0])), 0)
}

// SCHED_FIFO 50 for the calling thread.
func realTime() {
	priority := int32(50)
	syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&priority)))
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

// Calls work in each period, and returns how long each cycle took from when it was due.
func cycles(count int, work func(n int)) []int64 {
	begin := monotonic() + 500_000_000
	took := make([]int64, 0, count)
	for n := 0; n < count; n++ {
		due := begin + int64(n)*period
		sleepUntil(due)
		work(n)
		took = append(took, monotonic()-due)
	}
	return took
}

func printLog(took []int64) {
	fmt.Print(syscall.Gettid(), " ", len(took))
	for _, one := range took {
		fmt.Print(" ", one)
	}
	fmt.Println("\ndone")
}
