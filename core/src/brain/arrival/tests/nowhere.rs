//! What a request is told where no replica takes it.

use super::*;

impl Bench {
    fn probe(&mut self, replica: u32, probe: Probe) {
        self.tell(Event::Probed { replica: ReplicaId(replica), probe });
    }

    fn refused(&mut self) -> Option<Refusal> {
        let (_, verdicts) = self.arrive(1, 100, of(1, 1));
        verdicts.first()?.1.err()
    }
}

#[test]
fn where_every_replica_refuses_the_key_a_request_is_told_so_at_once() {
    for line in [holding(), LineSettings::default()] {
        let mut bench = Bench::new(2, line);
        bench.probe(0, Probe::Unauthorized);
        assert_eq!(bench.refused(), None, "the other takes it");
        bench.probe(1, Probe::Unauthorized);
        // Whatever is left of their pauses: only an operator can end this.
        for _ in 0..5 {
            assert_eq!(bench.refused(), Some(Refusal::Unauthorized));
            bench.wait(2.0);
        }
        bench.tell(Event::Leaving { replica: ReplicaId(0) });
        assert_eq!(bench.refused(), Some(Refusal::Unauthorized), "those that leave say nothing");
        bench.probe(1, Probe::Passed);
        assert_eq!(bench.refused(), None, "it lists its models again");
    }
}

#[test]
fn where_another_replica_is_out_for_another_reason_a_request_is_told_when_to_come_back() {
    let mut bench = Bench::new(2, LineSettings { holds: false, ..LineSettings::default() });
    bench.probe(0, Probe::Unauthorized);
    (0..3).for_each(|_| bench.probe(1, Probe::Refused));
    assert!(matches!(bench.refused(), Some(Refusal::NoReplica { .. })));
}

#[test]
fn what_a_replica_kept_that_refuses_the_key_is_not_called_gone() {
    let mut bench = Bench::new(2, holding());
    bench.probe(1, Probe::Unauthorized);
    let (request, verdicts) = bench.arrive_for(1, 1, 100);
    assert_eq!(verdicts, [(request, Err(Refusal::Unauthorized))]);
}
