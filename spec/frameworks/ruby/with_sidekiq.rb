# Sidekiq: queues in lists and a set, jobs for later and to be tried again in sorted sets, processes and counts in hashes.

require "json"
require "sidekiq"
require "sidekiq/api"

# Of what redis-rb will do differently.
Redis.silence_deprecations = true

URL = ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379/0")
JOBS = 500

Sidekiq.configure_client { |config| config.redis = { url: URL } }
Sidekiq.configure_server do |config|
  config.redis = { url: URL }
  # It looks for what is due about so often.
  config.options[:average_scheduled_poll_interval] = 0.2
  config.options[:poll_interval_average] = 0.2
  config.logger.level = Logger::FATAL
end

def store
  Sidekiq.redis { |redis| yield redis }
end

class Add
  include Sidekiq::Job

  def perform(a, b)
    store { |redis| redis.multi { |multi| multi.incr("added"); multi.hincrby("sums", (a + b).to_s, 1) } }
  end
end

class Note
  include Sidekiq::Job

  def perform(name)
    store { |redis| redis.rpush("order", name) }
  end
end

class Long
  include Sidekiq::Job

  def perform(name, text)
    store { |redis| redis.set(name, text.length) }
  end
end

class Clock
  include Sidekiq::Job

  def perform(name)
    store { |redis| redis.set(name, Time.now.to_f) }
  end
end

class FailsTwice
  include Sidekiq::Job
  sidekiq_retry_in { 0 }

  def perform
    raise "not yet" if store { |redis| redis.incr("tries") } < 3
    store { |redis| redis.set("tried", "at last") }
  end
end

# It lies in the sorted set of retries, and is taken out of it, with all of its text.
class LongFailsOnce
  include Sidekiq::Job
  sidekiq_retry_in { 0 }

  def perform(name, text)
    raise "not yet" if store { |redis| redis.incr("tries of #{name}") } < 2
    store { |redis| redis.set(name, text.length) }
  end
end

class Fails
  include Sidekiq::Job
  sidekiq_options retry: 0

  def perform
    raise "what was asked for"
  end
end

class Slow
  include Sidekiq::Job

  def perform
    sleep 60 if store { |redis| redis.incr("begun") } == 1
    store { |redis| redis.incr("done") }
  end
end

def check(name)
  yield
  puts "#{name}: ok"
  $stdout.flush
end

def equals(got, wanted)
  raise "#{got.inspect}, not #{wanted.inspect}" unless got == wanted
end

def wait_until(seconds = 60)
  ends = Time.now + seconds
  until yield
    raise "it does not come to hold" if Time.now > ends
    sleep 0.02
  end
end

# What is not done within four seconds of its end is given back. Threads wait two seconds at a time for a job: with less, one that is told
# to end may still be given a job, which is lost.
def worker(*queues, threads: 4)
  words = ["sidekiq", "-r", File.expand_path(__FILE__), "-c", threads.to_s, "-t", "4", *queues.flat_map { |queue| ["-q", queue] }]
  pid = spawn(*words, pgroup: true)
  at_exit { finish(pid, "KILL") }
  pid
end

def finish(pid, signal)
  Process.kill(signal, pid)
  Process.wait(pid)
rescue Errno::ESRCH, Errno::ECHILD
  # It is gone already.
end

def main
  %w[a b].each { |name| Note.set(queue: "low").perform_async(name) }
  %w[c d].each { |name| Note.set(queue: "high").perform_async(name) }
  equals(Sidekiq::Queue.all.map { |queue| [queue.name, queue.size] }, [["high", 2], ["low", 2]])

  check("first queue first") do
    pid = worker("high", "low", threads: 1)
    wait_until { store { |redis| redis.llen("order") } == 4 }
    equals(store { |redis| redis.lrange("order", 0, -1) }, %w[c d a b])
    finish(pid, "TERM")
  end

  first = worker("default")
  worker("default")

  check("jobs and exact counts") do
    ids = Sidekiq::Client.push_bulk("class" => Add, "args" => (0...JOBS).map { |n| [n, n] })
    equals(ids.uniq.size, JOBS)
    wait_until { store { |redis| redis.get("added") } == JOBS.to_s }
    equals(store { |redis| redis.hgetall("sums") }, (0...JOBS).to_h { |n| [(2 * n).to_s, "1"] })
    # Counts are told by each process every few seconds.
    wait_until { Sidekiq::Stats.new.processed == JOBS + 4 }
    equals([Sidekiq::Stats.new.failed, Sidekiq::Stats.new.enqueued], [0, 0])
  end

  check("processes are told of") do
    wait_until { Sidekiq::ProcessSet.new.size == 2 }
    equals(Sidekiq::ProcessSet.new.map { |process| [process["concurrency"], process["queues"]] }.uniq, [[4, ["default"]]])
  end

  check("long jobs") do
    lengths = [16_000, 16_400, 100_000, 1_000_000]
    lengths.each { |length| Long.perform_async("long #{length}", "x" * length) }
    lengths.each { |length| wait_until { store { |redis| redis.get("long #{length}") } == length.to_s } }
  end

  check("jobs for later") do
    began = Time.now.to_f
    Clock.perform_in(1.5, "later")
    Clock.perform_at(began + 600, "much later")
    equals(Sidekiq::ScheduledSet.new.size, 2)
    wait_until { store { |redis| redis.get("later") } }
    raise "too early" if store { |redis| redis.get("later") }.to_f < began + 1.5
    equals(Sidekiq::ScheduledSet.new.map(&:args), [["much later"]])
    Sidekiq::ScheduledSet.new.first.add_to_queue
    wait_until { store { |redis| redis.get("much later") } }
    equals(Sidekiq::ScheduledSet.new.size, 0)
    # A member of a sorted set.
    Long.perform_in(0.5, "long later", "x" * 1_000_000)
    wait_until { store { |redis| redis.get("long later") } == "1000000" }
    equals(Sidekiq::ScheduledSet.new.size, 0)
  end

  check("retries") do
    FailsTwice.perform_async
    # Both wait at the same time: before each retry it is 15 s at least.
    LongFailsOnce.perform_async("long again", "x" * 1_000_000)
    wait_until { store { |redis| redis.get("tried") } }
    equals(store { |redis| redis.get("tries") }, "3")
    wait_until { store { |redis| redis.get("long again") } == "1000000" }
    equals(store { |redis| redis.get("tries of long again") }, "2")
    wait_until { Sidekiq::RetrySet.new.size == 0 }
  end

  check("jobs that are given up are kept") do
    id = Fails.perform_async
    wait_until { Sidekiq::DeadSet.new.size == 1 }
    dead = Sidekiq::DeadSet.new.find_job(id)
    equals([dead["class"], dead["error_message"]], ["Fails", "what was asked for"])
    dead.retry
    wait_until { Sidekiq::DeadSet.new.size == 1 }
    Sidekiq::DeadSet.new.clear
    equals(Sidekiq::DeadSet.new.size, 0)
  end

  check("queues are looked through and cleared") do
    queue = Sidekiq::Queue.new("nobody")
    jobs = Sidekiq::Client.push_bulk("class" => Note, "queue" => "nobody", "args" => (0...150).map { |n| [n.to_s] })
    # The newest first.
    raise "not those jobs" unless queue.map(&:jid) == jobs.reverse
    raise "latency" unless queue.latency.between?(0, 60)
    queue.find_job(jobs[70]).delete
    equals(queue.size, 149)
    queue.clear
    equals([queue.size, Sidekiq::Queue.all.map(&:name).include?("nobody")], [0, false])
  end

  check("jobs of a process that ends are given again") do
    Slow.perform_async
    wait_until { store { |redis| redis.get("begun") } == "1" }
    at = nil
    wait_until(30) { at = Sidekiq::Workers.new.map { |process, _, work| [process, work["payload"]["class"]] }.find { |_, name| name == "Slow" } }
    Sidekiq::ProcessSet.new.find { |process| process["identity"] == at[0] }.stop!
    wait_until { store { |redis| redis.get("done") } == "1" }
    equals(store { |redis| redis.get("begun") }, "2")
    wait_until { Sidekiq::ProcessSet.new.size == 1 }
  end
end

main unless Sidekiq.server?
