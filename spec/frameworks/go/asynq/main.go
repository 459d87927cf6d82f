// asynq: tasks in hashes, queues in lists and sorted sets, every step of a task one script.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	. "frameworks/checks"
)

const jobs = 1000

var connection asynq.RedisConnOpt

// A server in another process, which is killed while it has a task.
func stuck() {
	server := asynq.NewServer(connection, asynq.Config{Concurrency: 1, Queues: map[string]int{"stuck": 1}, LogLevel: asynq.FatalLevel})
	Works(server.Run(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		Store.Incr(ctx, "begun")
		time.Sleep(time.Hour)
		return nil
	})))
}

func started(handler asynq.HandlerFunc, config asynq.Config) *asynq.Server {
	config.LogLevel = asynq.FatalLevel
	config.DelayedTaskCheckInterval = 100 * time.Millisecond
	config.TaskCheckInterval = 20 * time.Millisecond
	server := asynq.NewServer(connection, config)
	Works(server.Start(handler))
	return server
}

func main() {
	var err error
	connection, err = asynq.ParseRedisURI(URL())
	Works(err)
	if len(os.Args) > 1 {
		stuck()
	}
	client, inspector := asynq.NewClient(connection), asynq.NewInspector(connection)
	enqueue := func(name, payload string, options ...asynq.Option) *asynq.TaskInfo {
		info, err := client.Enqueue(asynq.NewTask(name, []byte(payload)), options...)
		Works(err)
		return info
	}

	Check("tasks and results", func() {
		var ran [2]atomic.Int64
		var servers []*asynq.Server
		for at := range ran {
			servers = append(servers, started(func(_ context.Context, task *asynq.Task) error {
				ran[at].Add(1)
				_, err := task.ResultWriter().Write(append([]byte("did "), task.Payload()...))
				return err
			}, asynq.Config{Concurrency: 8}))
		}
		for n := range jobs {
			enqueue("add", fmt.Sprint(n), asynq.Retention(time.Hour), asynq.TaskID(fmt.Sprint(n)))
		}
		Until(func() bool { return ran[0].Load()+ran[1].Load() == jobs })
		Until(func() bool {
			info, err := inspector.GetQueueInfo("default")
			Works(err)
			return info.Completed == jobs && info.Active == 0
		})
		for n := range jobs {
			info, err := inspector.GetTaskInfo("default", fmt.Sprint(n))
			Works(err)
			Equal(string(info.Result), fmt.Sprint("did ", n))
		}
		Equal(ran[0].Load() > 0 && ran[1].Load() > 0, true)
		info, err := inspector.GetQueueInfo("default")
		Works(err)
		Equal([]int{info.Processed, info.Failed, info.Size}, []int{jobs, 0, jobs})
		for _, server := range servers {
			server.Shutdown()
		}
		deleted, err := inspector.DeleteAllCompletedTasks("default")
		Works(err)
		Equal(deleted, jobs)
	})

	Check("queues by priority", func() {
		for n := range 10 {
			enqueue("ordered", fmt.Sprint("low ", n), asynq.Queue("low"))
			enqueue("ordered", fmt.Sprint("high ", n), asynq.Queue("high"))
		}
		var order []string
		var lock sync.Mutex
		server := started(func(_ context.Context, task *asynq.Task) error {
			lock.Lock()
			defer lock.Unlock()
			order = append(order, string(task.Payload()))
			return nil
		}, asynq.Config{Concurrency: 1, StrictPriority: true, Queues: map[string]int{"high": 2, "low": 1}})
		Until(func() bool { lock.Lock(); defer lock.Unlock(); return len(order) == 20 })
		server.Shutdown()
		for n := range 10 {
			Equal([]string{order[n], order[10+n]}, []string{fmt.Sprint("high ", n), fmt.Sprint("low ", n)})
		}
	})

	Check("retries, and what is given up is kept", func() {
		var tries atomic.Int64
		server := started(func(_ context.Context, task *asynq.Task) error {
			switch {
			case task.Type() == "never":
				return fmt.Errorf("what was asked for: %w", asynq.SkipRetry)
			case tries.Add(1) < 3:
				return errors.New("not yet")
			}
			return nil
		}, asynq.Config{
			Queues:         map[string]int{"retries": 1},
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 50 * time.Millisecond },
		})
		enqueue("sometimes", "", asynq.Queue("retries"), asynq.MaxRetry(5))
		never := enqueue("never", "", asynq.Queue("retries"))
		Until(func() bool { return tries.Load() == 3 })
		Until(func() bool {
			info, err := inspector.GetQueueInfo("retries")
			Works(err)
			return info.Archived == 1 && info.Size == 1
		})
		archived, err := inspector.ListArchivedTasks("retries")
		Works(err)
		Equal([]string{archived[0].ID, archived[0].LastErr}, []string{never.ID, "what was asked for: skip retry for the task"})
		server.Shutdown()
	})

	Check("tasks for later", func() {
		began := time.Now()
		ran := make(chan time.Time, 1)
		server := started(func(context.Context, *asynq.Task) error { ran <- time.Now(); return nil },
			asynq.Config{Queues: map[string]int{"later": 1}})
		info := enqueue("later", "", asynq.Queue("later"), asynq.ProcessIn(2*time.Second))
		Equal(info.State, asynq.TaskStateScheduled)
		// It is kept in whole seconds.
		Equal((<-ran).Sub(began) >= time.Second, true)
		server.Shutdown()
	})

	Check("one of a kind", func() {
		task := asynq.NewTask("kind", []byte("a"))
		_, err := client.Enqueue(task, asynq.Queue("kinds"), asynq.Unique(time.Hour))
		Works(err)
		_, err = client.Enqueue(task, asynq.Queue("kinds"), asynq.Unique(time.Hour))
		Equal(errors.Is(err, asynq.ErrDuplicateTask), true)
		_, err = client.Enqueue(asynq.NewTask("other", nil), asynq.Queue("kinds"), asynq.TaskID("mine"))
		Works(err)
		_, err = client.Enqueue(asynq.NewTask("other", nil), asynq.Queue("kinds"), asynq.TaskID("mine"))
		Equal(errors.Is(err, asynq.ErrTaskIDConflict), true)
		Works(inspector.DeleteQueue("kinds", true))
	})

	Check("groups become one task", func() {
		sums := make(chan string, 1)
		server := started(func(_ context.Context, task *asynq.Task) error { sums <- string(task.Payload()); return nil }, asynq.Config{
			Queues:        map[string]int{"groups": 1},
			GroupMaxSize:  20,
			GroupMaxDelay: time.Minute, GroupGracePeriod: 2 * time.Second,
			GroupAggregator: asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
				return asynq.NewTask("sum", []byte(fmt.Sprint(len(tasks))), asynq.Queue("groups"))
			}),
		})
		for range 20 {
			enqueue("member", "", asynq.Queue("groups"), asynq.Group("all"))
		}
		Equal(<-sums, "20")
		server.Shutdown()
	})

	Check("periodic tasks", func() {
		var ran atomic.Int64
		server := started(func(context.Context, *asynq.Task) error { ran.Add(1); return nil },
			asynq.Config{Queues: map[string]int{"periodic": 1}})
		scheduler := asynq.NewScheduler(connection, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
		_, err := scheduler.Register("@every 1s", asynq.NewTask("tick", nil), asynq.Queue("periodic"))
		Works(err)
		Works(scheduler.Start())
		Until(func() bool { return ran.Load() >= 2 })
		Until(func() bool {
			entries, err := inspector.SchedulerEntries()
			Works(err)
			return len(entries) == 1
		})
		scheduler.Shutdown()
		server.Shutdown()
	})

	Check("a task is told to stop", func() {
		stopped := make(chan error, 1)
		server := started(func(ctx context.Context, _ *asynq.Task) error {
			Store.Incr(ctx, "long")
			<-ctx.Done()
			stopped <- ctx.Err()
			return nil
		}, asynq.Config{Queues: map[string]int{"long": 1}})
		info := enqueue("long", "", asynq.Queue("long"))
		Until(func() bool { return Store.Get(context.Background(), "long").Val() == "1" })
		// Whether the server listens already is not known: the message is sent until it arrives.
		for len(stopped) == 0 {
			Works(inspector.CancelProcessing(info.ID))
			time.Sleep(50 * time.Millisecond)
		}
		Equal(<-stopped, context.Canceled)
		server.Shutdown()
	})

	Check("tasks of a killed server are given again", func() {
		other := exec.Command(os.Args[0], "stuck")
		other.Stderr = os.Stderr
		Works(other.Start())
		enqueue("stuck", "", asynq.Queue("stuck"), asynq.MaxRetry(3))
		Until(func() bool { return Store.Get(context.Background(), "begun").Val() == "1" })
		Works(other.Process.Kill())
		ran := make(chan int, 1)
		server := started(func(ctx context.Context, _ *asynq.Task) error {
			tried, _ := asynq.GetRetryCount(ctx)
			ran <- tried
			return nil
		}, asynq.Config{
			Queues:         map[string]int{"stuck": 1},
			RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
		})
		// Its lease is over after 30 s, which is looked for once a minute.
		Equal(<-ran, 1)
		server.Shutdown()
	})

	Check("a paused queue waits", func() {
		var ran atomic.Int64
		server := started(func(context.Context, *asynq.Task) error { ran.Add(1); return nil },
			asynq.Config{Queues: map[string]int{"later": 1}})
		Works(inspector.PauseQueue("later"))
		enqueue("one", "", asynq.Queue("later"))
		time.Sleep(300 * time.Millisecond)
		Equal(ran.Load(), int64(0))
		Works(inspector.UnpauseQueue("later"))
		Until(func() bool { return ran.Load() == 1 })
		server.Shutdown()
	})
}
