// Go's own elections on etcd, for the benchmark beside ours. Prints one line of nanoseconds per measurement:
// name, then the numbers. Built without modules, against the distribution's packages:
//
//	GO111MODULE=off go build -o peer bench/peers/etcd/main.go
package main

import (
	"bufio"
	"context"
	"fmt"
	"io/ioutil"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 5 * time.Second})
	check(err)
	rounds, err := strconv.Atoi(os.Args[3])
	check(err)
	switch os.Args[2] {
	case "campaign":
		print("campaign", campaigns(client, rounds))
	case "fresh":
		// Long enough for a follower to have begun to wait: before that there is nothing to hand over.
		print("fresh", handovers(client, rounds, 5*time.Millisecond))
	case "waited":
		print("waited", handovers(client, rounds, 300*time.Millisecond))
	case "rate":
		at, err := strconv.Atoi(os.Args[4])
		check(err)
		print("rate", []int64{rate(client, at, time.Duration(rounds)*time.Millisecond)})
	case "memory":
		print("memory", []int64{memory(client, rounds)})
	case "follow":
		follow(client, os.Args[4])
	case "lead":
		lead(client, os.Args[4], os.Args[5])
	}
}

func campaigns(client *clientv3.Client, rounds int) []int64 {
	session := open(client)
	var times []int64
	for round := 0; round < rounds; round++ {
		election := concurrency.NewElection(session, fmt.Sprintf("go-campaign-%d", round))
		start := time.Now()
		check(election.Campaign(context.Background(), "value"))
		times = append(times, time.Since(start).Nanoseconds())
		check(election.Resign(context.Background()))
	}
	return times
}

// From the leader's call to resign to the follower's return from Campaign.
func handovers(client *clientv3.Client, rounds int, wait time.Duration) []int64 {
	one, other := open(client), open(client)
	var times []int64
	for round := 0; round < rounds; round++ {
		name := fmt.Sprintf("go-handover-%d-%d", wait, round)
		leader, follower := concurrency.NewElection(one, name), concurrency.NewElection(other, name)
		check(leader.Campaign(context.Background(), "leader"))
		elected := make(chan time.Time)
		go func() {
			check(follower.Campaign(context.Background(), "follower"))
			elected <- time.Now()
		}()
		for count(client, name) < 2 {
		}
		time.Sleep(wait)
		start := time.Now()
		check(leader.Resign(context.Background()))
		times = append(times, (<-elected).Sub(start).Nanoseconds())
		check(follower.Resign(context.Background()))
	}
	return times
}

func count(client *clientv3.Client, name string) int64 {
	found, err := client.Get(context.Background(), name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	check(err)
	return found.Count
}

// Elections won per second, so many at once on one session.
func rate(client *clientv3.Client, at int, during time.Duration) int64 {
	session := open(client)
	var won int64
	var all sync.WaitGroup
	start := time.Now()
	for number := 0; number < at; number++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			for round := 0; time.Since(start) < during; round++ {
				election := concurrency.NewElection(session, fmt.Sprintf("go-rate-%d-%d-%d", at, number, round))
				check(election.Campaign(context.Background(), "value"))
				atomic.AddInt64(&won, 1)
				check(election.Resign(context.Background()))
			}
		}(number)
	}
	all.Wait()
	return int64(float64(won) / time.Since(start).Seconds())
}

// Bytes in memory per candidacy that waits.
func memory(client *clientv3.Client, count int) int64 {
	leaders, followers := open(client), open(client)
	for number := 0; number < count; number++ {
		name := fmt.Sprintf("go-memory-%d", number)
		check(concurrency.NewElection(leaders, name).Campaign(context.Background(), "leader"))
	}
	before := resident()
	for number := 0; number < count; number++ {
		name := fmt.Sprintf("go-memory-%d", number)
		go concurrency.NewElection(followers, name).Campaign(context.Background(), "follower")
	}
	for {
		found, err := client.Get(context.Background(), "go-memory-", clientv3.WithPrefix(), clientv3.WithCountOnly())
		check(err)
		if found.Count == int64(2*count) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
	return (resident() - before) / int64(count)
}

// Stands in an election for good, and says so when it leads. For somebody to kill.
func follow(client *clientv3.Client, name string) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(5))
	check(err)
	check(concurrency.NewElection(session, name).Campaign(context.Background(), "value"))
	fmt.Println("leads")
	select {}
}

// Stands again and again, and while it leads takes writes at the address that it advertises, one at a time, and writes
// them through the fence of the resource: what bench/src/handover/candidate.rs does with ours.
func lead(client *clientv3.Client, name string, resource string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	work := &work{resource: connect(resource), leaves: make(chan bool, 1)}
	go serve(listener, work)
	election := concurrency.NewElection(open(client), name)
	for {
		check(election.Campaign(context.Background(), listener.Addr().String()))
		if said := connect(resource).ask(fmt.Sprintf("go %d raise", election.Rev())); said != "done" {
			check(fmt.Errorf("the fence is not raised: %s", said))
		}
		work.begin(election.Rev())
		<-work.leaves
		// The drain: what is under way is finished, and nothing else is begun.
		work.begin(0)
		check(election.Resign(context.Background()))
	}
}

// Whoever takes a write holds the lock. The token is zero unless it leads.
type work struct {
	lock     sync.Mutex
	token    int64
	resource *line
	leaves   chan bool
}

func (work *work) begin(token int64) {
	work.lock.Lock()
	defer work.lock.Unlock()
	work.token = token
}

func (work *work) answer(asked string) string {
	work.lock.Lock()
	defer work.lock.Unlock()
	if work.token == 0 {
		return "refused"
	}
	if asked == "leave" {
		work.leaves <- true
		return "done"
	}
	if work.resource.ask(fmt.Sprintf("go %d %s", work.token, asked)) != "done" {
		return "refused"
	}
	return "done"
}

func serve(listener net.Listener, work *work) {
	for {
		stream, err := listener.Accept()
		check(err)
		go func() {
			for lines := bufio.NewScanner(stream); lines.Scan(); {
				fmt.Fprintln(stream, work.answer(lines.Text()))
			}
		}()
	}
}

// A connection on which each line is answered with a line.
type line struct {
	stream  net.Conn
	answers *bufio.Scanner
}

func connect(address string) *line {
	stream, err := net.Dial("tcp", address)
	check(err)
	return &line{stream, bufio.NewScanner(stream)}
}

func (line *line) ask(what string) string {
	fmt.Fprintln(line.stream, what)
	if !line.answers.Scan() {
		check(fmt.Errorf("no answer to %q", what))
	}
	return line.answers.Text()
}

func open(client *clientv3.Client) *concurrency.Session {
	session, err := concurrency.NewSession(client)
	check(err)
	return session
}

func resident() int64 {
	text, err := ioutil.ReadFile("/proc/self/smaps_rollup")
	check(err)
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Rss:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			check(err)
			return kib * 1024
		}
	}
	return 0
}

func print(name string, numbers []int64) {
	fmt.Print(name)
	for _, number := range numbers {
		fmt.Print(" ", number)
	}
	fmt.Println()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
