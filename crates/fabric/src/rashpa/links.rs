//! The links of a module, of which some may be down: a module works with those that are up (EUCALL D5.2, 3.2.4).
//! Packets take the links in turn.

use super::terms::LinkId;

/// Links that a module may have: bits of a mask.
pub const LINKS_MAX: usize = 32;

/// The links of a module and which of them are up.
#[derive(Clone, Debug)]
pub struct Links {
    count: u8,
    up: u32,
    next: u8,
}

impl Links {
    /// `count` links, numbered from 0, all up; `None` if they are more than [`LINKS_MAX`].
    pub const fn new(count: usize) -> Option<Self> {
        if count > LINKS_MAX {
            return None;
        }
        Some(Self { count: count as u8, up: ((1_u64 << count) - 1) as u32, next: 0 })
    }

    /// Notes that a link came up or went down; false if that is known, or if there is no such link.
    pub const fn set(&mut self, link: LinkId, is_up: bool) -> bool {
        if link.0 >= self.count || self.is_up(link) == is_up {
            return false;
        }
        self.up ^= 1 << link.0;
        true
    }

    /// True if the link is there and up.
    pub const fn is_up(&self, link: LinkId) -> bool {
        link.0 < self.count && self.up >> link.0 & 1 == 1
    }

    /// True if none of these links, by their bits, is up.
    pub const fn are_down(&self, of: u32) -> bool {
        self.up & of == 0
    }

    /// The link of the next packet, of these links; `None` if all of them are down.
    pub const fn choose(&mut self, of: u32) -> Option<LinkId> {
        let up = self.up & of;
        let from_next = up >> self.next;
        let link = match (up, from_next) {
            (0, _) => return None,
            (up, 0) => up.trailing_zeros(),
            (_, from_next) => self.next as u32 + from_next.trailing_zeros(),
        };
        self.next = ((link + 1) % LINKS_MAX as u32) as u8;
        Some(LinkId(link as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_take_the_links_that_are_up_in_turn() {
        let mut links = Links::new(3).expect("few links");
        let chosen = |links: &mut Links| (0..4).map(|_| links.choose(u32::MAX).map(|link| link.0)).collect::<Vec<_>>();
        assert_eq!(chosen(&mut links), [Some(0), Some(1), Some(2), Some(0)]);
        assert!(links.set(LinkId(1), false) && !links.set(LinkId(1), false) && !links.set(LinkId(3), true));
        assert_eq!(chosen(&mut links), [Some(2), Some(0), Some(2), Some(0)]);
        assert!(links.set(LinkId(0), false) && links.set(LinkId(2), false) && links.are_down(u32::MAX));
        assert_eq!(chosen(&mut links), [None; 4]);
        assert!(links.set(LinkId(1), true) && links.is_up(LinkId(1)) && !links.is_up(LinkId(9)));
        assert_eq!(chosen(&mut links), [Some(1); 4]);
        assert!(links.set(LinkId(2), true) && !links.are_down(0b110) && links.are_down(0b001));
        let of_some = (0..4).map(|_| links.choose(0b101).map(|link| link.0)).collect::<Vec<_>>();
        assert_eq!((of_some, links.choose(0b001)), (vec![Some(2); 4], None), "only of those that were asked for");
    }

    #[test]
    fn as_many_links_as_there_may_be() {
        let mut links = Links::new(LINKS_MAX).expect("they fit");
        let chosen: Vec<_> = (0..33).filter_map(|_| links.choose(u32::MAX)).map(|link| link.0).collect();
        assert_eq!(chosen, (0..32).chain([0]).collect::<Vec<_>>());
        assert!(Links::new(33).is_none());
        assert!(Links::new(0).expect("none").choose(u32::MAX).is_none());
    }
}
