// SPDX-License-Identifier: MIT OR Apache-2.0
import java.util.function.IntConsumer;

/** What the programs in Java share: a thread `control` that works each 10 ms, and its log. */
class Cycles {
    static void run(int cycles, IntConsumer work) throws InterruptedException {
        long[] took = new long[cycles];
        Thread control = new Thread(() -> {
            long begin = System.nanoTime() + 500_000_000L;
            for (int nth = 0; nth < cycles; nth++) {
                long due = begin + nth * 10_000_000L;
                while (due - System.nanoTime() > 0) {
                    java.util.concurrent.locks.LockSupport.parkNanos(due - System.nanoTime());
                }
                work.accept(nth);
                took[nth] = System.nanoTime() - due;
            }
        }, "control");
        control.start();
        control.join();
        var text = new StringBuilder("0 " + cycles);
        for (long one : took) {
            text.append(' ').append(one);
        }
        System.out.println(text);
        System.out.println("done");
    }
}
