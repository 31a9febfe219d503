// A thread `control` that works each 10 ms while another goroutine stops the world or collects. See classes.c for what it prints.
package main

import (
	"os"
	"runtime"
	"strconv"
	"time"
)

var live [][]byte
var sink []byte

func main() {
	kind := os.Args[1]
	count, _ := strconv.Atoi(os.Args[2])
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
		realTime()
		printLog(cycles(count, func(int) { sink = make([]byte, 4096) }))
		done <- true
	}()
	<-done
	time.Sleep(time.Second)
}
