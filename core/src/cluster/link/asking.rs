//! Questions that only the other router can answer, such as why it sent a request where it did. What they say concerns the
//! drivers; here they are carried and bounded. An answer that is lost or late is for the one that asked to give up.

use super::{Link, PeerFrame};
use crate::cluster::frame::{ANSWER_BYTES_MAX, QUESTION_BYTES_MAX};

/// The version from which on routers answer questions.
const VERSION_FROM: u32 = 4;
/// Questions and answers that wait to be sent; each answer has a bound of its own.
const WAITING_MAX: usize = 8;

impl Link {
    /// Asks the peer something and returns the number of the question; nothing where it cannot be asked now.
    pub fn question(&mut self, question: Vec<u8>) -> Option<u64> {
        let can_answer = self.peer.is_some() && VERSION_FROM <= self.version();
        if !can_answer || QUESTION_BYTES_MAX < question.len() || WAITING_MAX <= self.talk() {
            return None;
        }
        self.asked += 1;
        self.control.push_back(PeerFrame::Asked { number: self.asked, question });
        Some(self.asked)
    }

    /// Answers a question of the peer. One that asks faster than it takes answers gets none.
    pub fn answer(&mut self, number: u64, answer: Option<Vec<u8>>) {
        if self.talk() < WAITING_MAX {
            let answer = answer.filter(|it| it.len() <= ANSWER_BYTES_MAX);
            self.control.push_back(PeerFrame::Answered { number, answer });
        }
    }

    /// Counts the questions and answers that wait to be sent.
    fn talk(&self) -> usize {
        let is_talk =
            |it: &&PeerFrame| matches!(it, PeerFrame::Asked { .. } | PeerFrame::Answered { .. });
        self.control.iter().filter(is_talk).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Hello, LinkEvent, VERSION, VERSION_MIN};
    use crate::domain::{Moment, RouterId};

    /// A link whose peer speaks this version.
    fn link(version: u32) -> Link {
        let hello = |version, router| {
            let (router, address) = (RouterId(router), String::new());
            Hello { version, version_min: VERSION_MIN, router, address }
        };
        let mut link = Link::new(Moment::ZERO, hello(VERSION, 1));
        let frame = PeerFrame::Hello(hello(version, 2)).encode();
        link.on_frame(Moment::ZERO, &frame, &mut Vec::new()).unwrap();
        while link.take(Moment::ZERO).is_some() {}
        link
    }

    /// Carries what one link has to say to another; returns what that makes known.
    fn carry(from: &mut Link, to: &mut Link) -> Vec<LinkEvent> {
        let mut events = Vec::new();
        while let Some(frame) = from.take(Moment::ZERO) {
            to.on_frame(Moment::ZERO, &frame, &mut events).unwrap();
        }
        events
    }

    #[test]
    fn a_question_is_answered_under_its_number() {
        let (mut one, mut other) = (link(VERSION), link(VERSION));
        assert_eq!(one.question(b"why".to_vec()), Some(1));
        assert_eq!(one.question(b"who".to_vec()), Some(2));
        let asked = carry(&mut one, &mut other);
        assert_eq!(asked[1], LinkEvent::Asked { number: 2, question: b"who".to_vec() });
        other.answer(2, Some(b"she".to_vec()));
        other.answer(1, None);
        let answers = carry(&mut other, &mut one);
        let there = LinkEvent::Answered { number: 2, answer: Some(b"she".to_vec()) };
        assert_eq!(answers, [there, LinkEvent::Answered { number: 1, answer: None }]);
    }

    #[test]
    fn an_older_router_is_not_asked_and_what_waits_is_bounded() {
        assert_eq!(link(3).question(b"why".to_vec()), None);
        let mut one = link(VERSION);
        assert_eq!(one.question(vec![0; QUESTION_BYTES_MAX + 1]), None);
        one.answer(1, Some(vec![0; ANSWER_BYTES_MAX + 1]));
        let mut other = link(VERSION);
        let answers = carry(&mut one, &mut other);
        assert_eq!(answers, [LinkEvent::Answered { number: 1, answer: None }]);
        (0..100).for_each(|it| one.answer(it, Some(vec![0; ANSWER_BYTES_MAX])));
        assert_eq!(one.question(b"why".to_vec()), None, "it takes nothing");
        assert_eq!(carry(&mut one, &mut other).len(), WAITING_MAX);
    }
}
