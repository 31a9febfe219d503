// SPDX-License-Identifier: MIT OR Apache-2.0
/** A thread that works in cycles of 8 ms and in one of ten takes 5 ms longer, in one method. After 150 cycles, it has its map written. */
public class Step {
    static volatile long value;

    static void filterSamples() {
        long end = System.nanoTime() + 200_000;
        while (System.nanoTime() < end)
            value = value * 6364136223846793005L + 1;
    }

    static void planAgain() {
        long end = System.nanoTime() + 5_000_000;
        while (System.nanoTime() < end) {
            long now = value;
            for (int i = 0; i < 20000; i++)
                now = now * 2862933555777941757L + 3;
            value = now;
        }
    }

    static void controlCycle(int nth) {
        filterSamples();
        if (nth % 10 == 9)
            planAgain();
    }

    public static void main(String[] words) throws Exception {
        String self = Long.toString(ProcessHandle.current().pid());
        long next = System.nanoTime();
        for (int nth = 0; nth < Integer.parseInt(words[0]); nth++) {
            next = Math.max(next + 8_000_000, System.nanoTime());
            java.util.concurrent.locks.LockSupport.parkNanos(next - System.nanoTime());
            controlCycle(nth);
            if (nth == 150)
                new ProcessBuilder("jcmd", self, "Compiler.perfmap").start().waitFor();
        }
    }
}
