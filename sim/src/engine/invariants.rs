//! What must hold of an engine at every moment, each as a predicate with a name. The budget is
//! asserted in debug builds after every step; properties and simulations check them all.

use super::Engine;

/// Returns the names of the invariants that do not hold; none in a sound engine.
pub fn broken(engine: &Engine) -> Vec<&'static str> {
    type Predicate = fn(&Engine) -> bool;
    let all: [(&str, Predicate); 6] = [
        ("blocks are conserved", blocks_are_conserved),
        ("unheld blocks are listed once", unheld_blocks_are_listed_once),
        ("references match holders", references_match_holders),
        ("names match blocks", names_match_blocks),
        ("no job waits and runs", no_job_waits_and_runs),
        ("the budget is kept", budget_is_kept),
    ];
    all.into_iter().filter(|(_, holds)| !holds(engine)).map(|(name, _)| name).collect()
}

/// Free, cached and held blocks, counted one by one, are all there are.
pub fn blocks_are_conserved(engine: &Engine) -> bool {
    let held = engine.kv.ids().filter(|block| 0 < engine.kv.refs(*block)).count();
    let unheld = engine.kv.unheld().count();
    u32::try_from(held + unheld) == Ok(engine.kv.total())
        && u32::try_from(unheld) == Ok(engine.kv.available())
}

/// The list of free blocks has exactly those without a holder, each once.
pub fn unheld_blocks_are_listed_once(engine: &Engine) -> bool {
    let listed: std::collections::BTreeSet<_> = engine.kv.unheld().collect();
    let unheld = engine.kv.ids().filter(|block| engine.kv.refs(*block) == 0);
    listed.len() == engine.kv.unheld().count() && unheld.eq(listed)
}

/// A block is referenced as often as sequences hold it.
pub fn references_match_holders(engine: &Engine) -> bool {
    let mut holders = vec![0; engine.kv.ids().count()];
    for block in engine.slots.iter().flat_map(|it| &it.blocks) {
        holders[block.index()] += 1;
    }
    engine.kv.ids().zip(holders).all(|(block, count)| engine.kv.refs(block) == count)
}

/// Every cached prefix leads to the block that holds it.
pub fn names_match_blocks(engine: &Engine) -> bool {
    engine.kv.names_match()
}

/// Every job is either in the line or running, once; no job in the line holds KV.
pub fn no_job_waits_and_runs(engine: &Engine) -> bool {
    let places: std::collections::BTreeSet<u32> =
        engine.waiting.iter().chain(&engine.running).copied().collect();
    places.len() == engine.waiting.len() + engine.running.len()
        && places.len() == engine.slot_of.len()
        && engine.waiting.iter().all(|slot| engine.slots.get(*slot).blocks.is_empty())
}

/// No step computes more tokens or runs more sequences than it may.
pub fn budget_is_kept(engine: &Engine) -> bool {
    let seqs = u32::try_from(engine.running.len()).unwrap_or(u32::MAX);
    engine.step.tokens <= engine.settings.batched_tokens_max
        && seqs <= engine.settings.seqs_max
        && engine.step.slots.len() <= engine.running.len()
}
