// SPDX-License-Identifier: MIT OR Apache-2.0
/** A thread `control` that works each 10 ms; in one of ten cycles `replan` takes 5 ms. See classes.c for what it prints. After its warm-up it has its map written. */
public class Own {
    static volatile long value;
    static long rounds = 1_000_000;

    static void replan() {
        long now = value;
        for (long left = rounds; left > 0; left--) {
            now = now * 2862933555777941757L + 3;
        }
        value = now;
    }

    static void filter() {
        long now = value;
        for (long left = rounds / 25; left > 0; left--) {
            now = now * 6364136223846793005L + 1;
        }
        value = now;
    }

    static void update(int nth) {
        filter();
        if (nth % 10 == 5) {
            replan();
        }
    }

    public static void main(String[] words) throws Exception {
        int cycles = Integer.parseInt(words[0]);
        long best = Long.MAX_VALUE;
        for (int nth = 0; nth < 200; nth++) {
            long from = System.nanoTime();
            update(nth);
            replan();
            best = Math.min(best, System.nanoTime() - from);
        }
        rounds = rounds * 5_000_000 / best;
        String self = Long.toString(ProcessHandle.current().pid());
        new ProcessBuilder("jcmd", self, "Compiler.perfmap").redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor();
        Cycles.run(cycles, Own::update);
        Thread.sleep(1000);
    }
}
