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
        Thread garbage = new Thread(Gc::allocate, "garbage");
        garbage.setDaemon(true);
        garbage.start();
        Cycles.run(cycles, nth -> last = new byte[64]);
        isOver = true;
        Thread.sleep(1000);
    }
}
