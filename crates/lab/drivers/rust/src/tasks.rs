//! Callers that are tasks, of one client, on a runtime of one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_client::Ttl;
use larder_client::tokio::{Batch, Client};
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::clients::{Answer, compared, larder_told};
use crate::{Counts, Done, GET, Job, MANY_KEYS, Outcome, SET, SETS, Space, processor_ns, say};

/// A task that calls.
struct Caller {
    client: Client,
    batch: Batch,
    space: Arc<Space>,
    buffer: Vec<u8>,
    counts: Counts,
}

impl Caller {
    async fn call(&mut self, op: u8) {
        let at = self.counts.next(self.space.values.len());
        let answer = match op {
            SET => self.set(at).await,
            GET => self.get(at).await,
            SETS => self.sets(at).await,
            _ => self.many(at).await,
        };
        self.counts.take(answer);
    }

    async fn get(&mut self, at: usize) -> Answer {
        self.buffer.clear();
        match self.client.get_into(self.space.names[at].as_bytes(), &mut self.buffer).await {
            Ok(Some(_)) => compared(&self.buffer, &self.space.values[at]),
            Ok(None) => Answer::Miss,
            Err(error) => larder_told(error),
        }
    }

    async fn set(&mut self, at: usize) -> Answer {
        let set = self.client.set(self.space.names[at].as_bytes(), &self.space.values[at]);
        match set.ttl(Ttl::Forever).send().await {
            Ok(_) => Answer::Right,
            Err(error) => larder_told(error),
        }
    }

    async fn many(&mut self, at: usize) -> Answer {
        let keys = &self.space.names[at..at + MANY_KEYS];
        let tickets: Vec<_> = keys.iter().map(|key| self.batch.get(key.as_bytes())).collect();
        let done = self.batch.run().await;
        let (mut found, mut wrong) = (0, 0);
        for (key, ticket) in keys.iter().zip(&tickets) {
            match done.value(ticket) {
                Ok(Some((value, _))) => {
                    found += 1;
                    wrong += usize::from(!self.space.is_right(key.as_bytes(), value));
                }
                Ok(None) => {}
                Err(error) => return larder_told(error),
            }
        }
        Answer::Many { found, wrong }
    }

    async fn sets(&mut self, at: usize) -> Answer {
        let batch = &mut self.batch;
        let set = |(key, value): (&str, &[u8])| batch.set(key.as_bytes(), value, Ttl::Forever);
        let tickets: Vec<_> = self.space.several(at).map(set).collect();
        let done = self.batch.run().await;
        let failed = tickets.into_iter().find_map(|ticket| done.take(ticket).err());
        failed.map_or(Answer::Right, larder_told)
    }

    /// Calls, and notes how long it took since `last`.
    async fn timed(&mut self, op: u8, began: Instant, last: Instant, pause: Duration) -> Instant {
        let told = self.counts.done.told;
        self.call(op).await;
        let now = Instant::now();
        if !self.counts.note(told, began, last, now) || pause.is_zero() {
            return now;
        }
        sleep(pause).await;
        Instant::now()
    }

    async fn steady(&mut self, job: &Job, began: Instant) {
        let pause = Duration::from_nanos(job.pause_ns);
        let mut last = began;
        while self.counts.goes_on(job, began, last) {
            last = self.timed(job.op, began, last, pause).await;
        }
    }
}

/// Does a job with a caller for each of these counts.
pub fn run(job: &Job, space: Space, counts: Vec<Counts>, mut hear: impl FnMut() -> bool) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let client = job.builder()?.build_tokio();
    let (client, space) = (client.map_err(|error| error.to_string())?, Arc::new(space));
    let caller = |counts| Caller {
        client: client.clone(),
        batch: client.batch(),
        space: Arc::clone(&space),
        buffer: Vec::new(),
        counts,
    };
    let mut callers: Vec<Caller> = counts.into_iter().map(caller).collect();
    if !job.cold && job.bursts == 0 {
        for caller in &mut callers {
            runtime.block_on(async {
                for _ in 0..4 {
                    caller.call(job.op).await;
                }
            });
            caller.counts.done = Done::default();
        }
    }
    say(&serde_json::json!({ "ready": 1 }));
    if !hear() {
        return Ok(None);
    }
    let (cpu, began) = (processor_ns(), Instant::now());
    let mut all = Done::default();
    if let [caller] = callers.as_mut_slice()
        && job.bursts == 0
    {
        let allocated = allocation_counter::measure(|| runtime.block_on(caller.steady(job, began)));
        (all.allocations, all.allocated_bytes) = (allocated.count_total, allocated.bytes_total);
    } else if job.bursts == 0 {
        let job = Arc::new(job.clone());
        callers = runtime.block_on(each(callers, |mut caller| {
            let job = Arc::clone(&job);
            async move {
                caller.steady(&job, began).await;
                caller
            }
        }));
    } else {
        let op = job.op;
        for _ in 0..job.bursts {
            callers = runtime.block_on(each(callers, |mut caller| async move {
                caller.timed(op, began, Instant::now(), Duration::ZERO).await;
                caller
            }));
            std::thread::sleep(Duration::from_nanos(job.pause_ns));
        }
    }
    all.return_ns = began.elapsed().as_nanos() as u64;
    all.cpu_ns = processor_ns() - cpu;
    Ok(Some((all, callers.into_iter().map(|caller| caller.counts).collect())))
}

/// A task for each caller, all at once; the callers again.
async fn each<F>(callers: Vec<Caller>, call: impl Fn(Caller) -> F) -> Vec<Caller>
where
    F: Future<Output = Caller> + Send + 'static,
{
    let tasks: Vec<_> = callers.into_iter().map(|caller| tokio::spawn(call(caller))).collect();
    let mut callers = Vec::new();
    for task in tasks {
        callers.push(task.await.expect("it does not panic"));
    }
    callers
}
