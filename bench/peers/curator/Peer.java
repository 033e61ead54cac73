// Curator's own elections on ZooKeeper, for the tests in which they stand in line with ours, and for the benchmark
// beside ours.
//
//     java -cp CLASSES Peer ENDPOINTS stand SESSION_MILLIS
//     java -cp CLASSES Peer ENDPOINTS campaign|handover|many WARM_UP ROUNDS
//
// `stand` says which session it has (`session HEX`), obeys the lines of its standard input, and says on its standard
// output what happens. Times are nanoseconds of the machine's monotonic clock:
//
//     campaign latch|selector PATH ID     ->  gained ID TIME, once it leads
//     resign ID                           ->  resigned ID TIME, where TIME is before it has begun to let go
//                                             lost ID TIME, if it leads no longer and nobody asked it to resign
//
// The others print the nanoseconds that each round took, in one line.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.retry.RetryNTimes;

public class Peer {
    private static final int SESSION_MILLIS = 30_000;

    public static void main(String[] args) throws Exception {
        String endpoints = args[0];
        switch (args[1]) {
            case "stand":
                stand(connect(endpoints, Integer.parseInt(args[2])));
                break;
            case "campaign":
                print(campaigns(endpoints, Integer.parseInt(args[2]), Integer.parseInt(args[3])));
                break;
            case "handover":
                print(handovers(endpoints, Integer.parseInt(args[2]), Integer.parseInt(args[3])));
                break;
            case "many":
                print(many(endpoints, Integer.parseInt(args[2]), Integer.parseInt(args[3])));
                break;
            default:
                throw new IllegalArgumentException(args[1]);
        }
        // Curator's threads would go on.
        System.exit(0);
    }

    private static CuratorFramework connect(String endpoints) throws Exception {
        return connect(endpoints, SESSION_MILLIS);
    }

    private static CuratorFramework connect(String endpoints, int sessionMillis) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(endpoints, sessionMillis, sessionMillis, new RetryNTimes(100, 50));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    // A candidate that somebody else tells when to resign.
    private interface Candidate {
        void resign() throws Exception;
    }

    private static void stand(CuratorFramework client) throws Exception {
        System.out.println("session " + Long.toHexString(client.getZookeeperClient().getZooKeeper().getSessionId()));
        Map<String, Candidate> candidates = new HashMap<>();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("campaign") && words[1].equals("latch")) {
                candidates.put(words[3], latch(client, words[2], words[3]));
            } else if (words[0].equals("campaign") && words[1].equals("selector")) {
                candidates.put(words[3], selector(client, words[2], words[3]));
            } else if (words[0].equals("resign")) {
                candidates.remove(words[1]).resign();
            } else {
                throw new IllegalArgumentException(line);
            }
        }
    }

    private static Candidate latch(CuratorFramework client, String path, String id) throws Exception {
        LeaderLatch latch = new LeaderLatch(client, path, id);
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                say("gained", id, System.nanoTime());
            }

            @Override
            public void notLeader() {
                say("lost", id, System.nanoTime());
            }
        });
        latch.start();
        return () -> {
            long time = System.nanoTime();
            latch.close(LeaderLatch.CloseMode.SILENT);
            say("resigned", id, time);
        };
    }

    private static Candidate selector(CuratorFramework client, String path, String id) {
        CountDownLatch told = new CountDownLatch(1);
        AtomicBoolean gained = new AtomicBoolean();
        LeaderSelector selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) {
                gained.set(true);
                say("gained", id, System.nanoTime());
                try {
                    told.await();
                } catch (InterruptedException interrupted) {
                    // Either it was lost, or it was gained and resigned at the same time.
                }
                say(told.getCount() == 0 ? "resigned" : "lost", id, System.nanoTime());
            }
        });
        selector.setId(id);
        selector.start();
        return () -> {
            told.countDown();
            if (!gained.get()) {
                selector.close();
                if (!gained.get()) {
                    say("resigned", id, System.nanoTime());
                }
            }
        };
    }

    private static synchronized void say(String what, String id, long time) {
        System.out.println(what + " " + id + " " + time);
        System.out.flush();
    }

    // Nobody else stands; the session is there.
    private static List<Long> campaigns(String endpoints, int warmUp, int rounds) throws Exception {
        CuratorFramework client = connect(endpoints);
        String run = unique();
        List<Long> times = new ArrayList<>();
        for (int round = 0; round < warmUp + rounds; round++) {
            LeaderLatch latch = new LeaderLatch(client, "/curator-campaign-" + run + "-" + round, "value");
            long start = System.nanoTime();
            latch.start();
            latch.await();
            long end = System.nanoTime();
            if (round >= warmUp) {
                times.add(end - start);
            }
            latch.close();
        }
        return times;
    }

    // From the leader's call to close to the follower's return from await.
    private static List<Long> handovers(String endpoints, int warmUp, int rounds) throws Exception {
        CuratorFramework one = connect(endpoints);
        CuratorFramework other = connect(endpoints);
        String run = unique();
        List<Long> times = new ArrayList<>();
        for (int round = 0; round < warmUp + rounds; round++) {
            String path = "/curator-handover-" + run + "-" + round;
            LeaderLatch leader = new LeaderLatch(one, path, "leader");
            leader.start();
            leader.await();
            LeaderLatch follower = new LeaderLatch(other, path, "follower");
            CompletableFuture<Long> elected = new CompletableFuture<>();
            follower.start();
            Thread waiting = new Thread(() -> {
                try {
                    follower.await();
                    elected.complete(System.nanoTime());
                } catch (Exception failure) {
                    elected.completeExceptionally(failure);
                }
            });
            waiting.start();
            while (one.getChildren().forPath(path).size() < 2) {
                // It is on its way.
            }
            // Until it watches.
            Thread.sleep(20);
            long start = System.nanoTime();
            leader.close();
            long end = elected.get();
            if (round >= warmUp) {
                times.add(end - start);
            }
            waiting.join();
            follower.close();
        }
        return times;
    }

    // So many elections on one session, until all are won.
    private static List<Long> many(String endpoints, int warmUp, int elections) throws Exception {
        CuratorFramework client = connect(endpoints);
        String run = unique();
        won(client, run + "-warm", warmUp);
        return List.of(won(client, run, elections));
    }

    private static long won(CuratorFramework client, String run, int elections) throws Exception {
        List<LeaderLatch> latches = new ArrayList<>();
        for (int number = 0; number < elections; number++) {
            latches.add(new LeaderLatch(client, "/curator-many-" + run + "-" + number, "value"));
        }
        long start = System.nanoTime();
        for (LeaderLatch latch : latches) {
            latch.start();
        }
        for (LeaderLatch latch : latches) {
            latch.await();
        }
        long end = System.nanoTime();
        for (LeaderLatch latch : latches) {
            latch.close();
        }
        return end - start;
    }

    private static String unique() {
        return Long.toHexString(ProcessHandle.current().pid()) + "-" + Long.toHexString(System.nanoTime());
    }

    private static void print(List<Long> times) {
        StringBuilder line = new StringBuilder("times");
        for (long time : times) {
            line.append(' ').append(time);
        }
        System.out.println(line);
    }
}
