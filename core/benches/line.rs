//! How long does the line take to let a request in and to say which goes next, when a hundred
//! thousand of a thousand tenants wait? Every operation is timed by itself, because it is done
//! under a lock and what matters is the worst of them, not the mean. Run by `cargo xtask bench
//! line`.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![expect(clippy::print_stdout, reason = "what is measured is printed")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cleave_core::domain::{Moment, RequestId};
use cleave_core::queue::{ClassId, Classes, Lane, Line, QueueLimits, Tenant, Ticket, Weight, Work};

const WAITING: u64 = 100_000;
const TENANTS: u64 = 1_000;
const ROUNDS: u64 = 100_000;

/// Spreads a counter, so that tenants and deadlines come in no order.
const fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

fn ticket(number: u64) -> Ticket {
    let lot = spread(number);
    Ticket {
        request: RequestId(number),
        class: ClassId(u8::try_from(lot % 3).unwrap_or(0)),
        tenant: Tenant(lot % TENANTS),
        weight: Weight::ONE,
        lane: Lane(lot % 4),
        deadline: lot.is_multiple_of(2).then(|| Moment::from_nanos(lot)),
        target: lot.is_multiple_of(3).then(|| Moment::from_nanos(lot / 2)),
        expires_at: Moment::from_nanos(lot.wrapping_mul(3)),
        work: Work::from_parts(1_000 + lot % 1_000_000),
        bytes: 1_000,
    }
}

fn report(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_nanos();
    let mean = times.iter().sum::<Duration>().as_nanos() / u128::try_from(times.len()).unwrap_or(1);
    println!("{name:<12} {:>9} {:>9} {:>9} {:>9}", mean, at(50), at(99), at(100));
}

fn timed<T>(times: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = black_box(work());
    times.push(start.elapsed());
    result
}

fn main() {
    let settings = QueueLimits { count_max: 2_000_000, bytes_max: usize::MAX };
    let mut line = Line::new(settings, &Classes::default());
    let mut displaced = Vec::new();
    for number in 0..WAITING {
        line.join(ticket(number), &mut displaced).expect("the line has room");
    }
    let [mut joins, mut nexts, mut aheads, mut removes, mut closed] = [const { Vec::new() }; 5];
    for number in WAITING..WAITING + ROUNDS {
        let ticket = ticket(number);
        timed(&mut aheads, || line.ahead(Moment::ZERO, &ticket));
        timed(&mut joins, || line.join(ticket, &mut displaced)).expect("the line has room");
        timed(&mut closed, || line.next(Moment::ZERO, |it| it == Lane(9), |_| false));
        if number.is_multiple_of(8) {
            let whose = RequestId(number - spread(number) % WAITING);
            timed(&mut removes, || line.remove(whose));
        } else {
            timed(&mut nexts, || {
                line.next(Moment::ZERO, |it| it != Lane(3) || number.is_multiple_of(3), |_| false)
            });
        }
    }
    println!("{} waiting of {TENANTS} tenants; nanoseconds", line.len());
    println!("{:<12} {:>9} {:>9} {:>9} {:>9}", "", "mean", "p50", "p99", "max");
    report("enqueue", &mut joins);
    report("dequeue", &mut nexts);
    report("all closed", &mut closed);
    report("predict", &mut aheads);
    report("client left", &mut removes);
}
