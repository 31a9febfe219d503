import java.util.ArrayList;

/** A thread `control` that works each 10 ms while another thread makes garbage and live arrays. See classes.c for what it prints. */
public class Gc {
    static volatile boolean isOver;
    static volatile Object last;

    static void allocate() {
        var live = new ArrayList<byte[]>();
        while (!isOver) {
            live.add(new byte[4096]);
            if (live.size() > 6000) {
                live.subList(0, 3000).clear();
            }
            last = new byte[256];
            Thread.onSpinWait();
        }
    }

    public static void main(String[] words) throws Exception {
        int cycles = Integer.parseInt(words[1]);
        long[] took = new long[cycles];
        Thread garbage = new Thread(Gc::allocate, "garbage");
        garbage.setDaemon(true);
        garbage.start();
        Thread control = new Thread(() -> {
            long begin = System.nanoTime() + 500_000_000L;
            for (int nth = 0; nth < cycles; nth++) {
                long due = begin + nth * 10_000_000L;
                while (due - System.nanoTime() > 0) {
                    java.util.concurrent.locks.LockSupport.parkNanos(due - System.nanoTime());
                }
                last = new byte[64];
                took[nth] = System.nanoTime() - due;
            }
        }, "control");
        control.start();
        control.join();
        isOver = true;
        var text = new StringBuilder("0 " + cycles);
        for (long one : took) {
            text.append(' ').append(one);
        }
        System.out.println(text);
        System.out.println("done");
        Thread.sleep(1000);
    }
}
