//! The attacks, in the order of the harm they would do. Each file says what it tries and what must hold.

mod cache_salts;
mod contracts;
mod credentials;
mod deadly_prompts;
mod echoes;
mod explanations;
mod floods;
mod foreign_pages;
mod hostile_figures;
mod hung_up_prompts;
mod idle_uploads;
mod lying_replica;
mod many_names;
mod odd_answers;
mod odd_requests;
mod silent_connections;
mod slow_prompts;
mod spent_retries;
mod steering;
mod stopped_readers;
mod tenant_comes_back;
mod unread_log;
mod usage_echoed;

use super::Attack;

pub(super) const ALL: &[&Attack] = &[
    &usage_echoed::ATTACK,
    &usage_echoed::WAITING,
    &lying_replica::ATTACK,
    &hostile_figures::ATTACK,
    &idle_uploads::ATTACK,
    &idle_uploads::WITHOUT_KEYS,
    &stopped_readers::ATTACK,
    &cache_salts::ATTACK,
    &unread_log::ATTACK,
    &hung_up_prompts::ATTACK,
    &slow_prompts::SILENT,
    &slow_prompts::SLOW,
    &spent_retries::ATTACK,
    &silent_connections::ON_ADMIN,
    &silent_connections::ON_ADMIN_SLOW,
    &silent_connections::ON_EVENTS,
    &silent_connections::ON_CLIENT,
    &contracts::CANCELLED,
    &contracts::WITHOUT_BLANKS,
    &contracts::ECHOED_NOTHING,
    &contracts::ABSURD,
    &credentials::ATTACK,
    &explanations::ATTACK,
    &foreign_pages::ATTACK,
    &steering::ATTACK,
    &deadly_prompts::WITHOUT_KEYS,
    &deadly_prompts::WITH_KEYS,
    &echoes::NAMES,
    &echoes::REDIRECTS,
    &tenant_comes_back::ATTACK,
    &odd_answers::GARBAGE,
    &odd_answers::INTERIM,
    &odd_requests::ATTACK,
    &many_names::ATTACK,
    &many_names::STREAMS,
    &floods::PINGS,
    &floods::SETTINGS_FRAMES,
    &floods::PRIORITIES,
    &floods::WINDOWS,
    &floods::RESETS,
    &floods::EMPTY_DATA,
    &floods::CONTINUATIONS,
    &floods::UNKNOWN,
    &floods::BAD_HEADS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_has_a_name_of_its_own_and_says_what_it_tries() {
        let names: std::collections::BTreeSet<&str> = ALL.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), ALL.len());
        let is_word = |it: &str| it.chars().all(|it| it.is_ascii_lowercase() || it == '_');
        assert!(ALL.iter().all(|it| is_word(it.name) && !it.tries.is_empty()));
    }
}
