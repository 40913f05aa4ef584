//! Who configures a member: whoever sends it `comm-config` first, until it releases the member. Its telegrams have
//! rising numbers.

use super::telegram::{Body, Code, Nack, Name, Sentence, Telegram};

/// Why a telegram is refused: the kind, and the sentence.
pub(super) type Refusal = (Code, String);

/// The master of a module or a receiver.
#[derive(Debug, Default)]
pub(super) struct Mastership {
    /// Its name, and the number of its last telegram.
    master: Option<(Name, u32)>,
}

impl Mastership {
    /// The name of the master, if there is one.
    pub(super) fn name(&self) -> Option<&Name> {
        self.master.as_ref().map(|(name, _)| name)
    }

    /// Checks whose telegram it is; the first `comm-config` makes its sender the master. `member` is the name of the
    /// member and `kind` what it is, for the refusal. Returns true if there is a new master.
    pub(super) fn claim(&mut self, telegram: &Telegram, member: &Name, kind: &str) -> Result<bool, Refusal> {
        match &mut self.master {
            Some((master, _)) if *master != telegram.sender => {
                let (member, master) = (member.as_str(), master.as_str());
                Err((Code::Master, format!("{member} is configured by {master}; it has to release the {kind} first")))
            }
            Some((_, last)) if telegram.number <= *last => {
                Err((Code::Number, format!("telegram {} comes after telegram {last}; numbers have to rise", telegram.number)))
            }
            Some((_, last)) => {
                *last = telegram.number;
                Ok(false)
            }
            None if matches!(telegram.body, Body::CommConfig(_)) => {
                self.master = Some((telegram.sender.clone(), telegram.number));
                Ok(true)
            }
            None => {
                let name = telegram.body.element();
                Err((Code::Order, format!("{name} comes after comm-config, which was not done; do that first")))
            }
        }
    }

    /// There is no master any more.
    pub(super) fn release(&mut self) {
        self.master = None;
    }
}

/// The answer of a member to telegram `number`; `own_number` is that of its last telegram.
pub(super) fn reply(answer: Result<Body, Refusal>, number: u32, sender: &Name, own_number: &mut u32) -> Telegram {
    let refused = |(code, reason): Refusal| Body::Nack(Nack { number, code, reason: Sentence::lossy(&reason) });
    *own_number = own_number.wrapping_add(1);
    Telegram { number: *own_number, sender: sender.clone(), body: answer.unwrap_or_else(refused) }
}
