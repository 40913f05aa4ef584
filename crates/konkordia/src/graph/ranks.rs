//! Edges over MPI: each process of the graph is a rank, in the order of [`Graph::members`]. A message is the image, the
//! head and the length of the head, so that the image need not be moved when it has arrived.

use konkordia_core::failure::{Exit, Failure};
use konkordia_graph::file::Graph;
use konkordia_graph::message::ROW_BYTES_MAX;
use konkordia_links::mpi::{self, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Messages of one direction of an edge that wait for this process; credits bound images, and heartbeats are small.
const WAITING_MAX: usize = 1 << 16;
/// Time between two looks for messages: MPI has nothing that could be waited for.
const LOOK: Duration = Duration::from_micros(50);
/// Longest time that the last messages may take at the end.
const LAST: Duration = Duration::from_millis(500);

/// The messages of this rank.
pub struct Post {
    world: World,
    members: Vec<String>,
    /// By direction of an edge and rank.
    arrived: BTreeMap<(u16, usize), VecDeque<Vec<u8>>>,
    /// Ranks that have something in `arrived`, by direction, in the order of their arrival.
    order: BTreeMap<u16, VecDeque<usize>>,
}

/// The rank in the graph, if `mpirun` has started this process.
pub fn member_of_environment(graph: &Graph) -> Option<String> {
    let rank = mpi::rank_of_environment()?;
    graph.members().nth(rank).map(|(_, member)| member)
}

impl Post {
    /// Joins the other ranks.
    ///
    /// # Errors
    /// There is no Open MPI, or it started another number of processes.
    pub fn open(graph: &Graph) -> Result<Rc<RefCell<Self>>, Failure> {
        let failed = |why: String, fix: String| Failure::new(Exit::Usage, "the graph cannot run by MPI", why, fix);
        let members: Vec<_> = graph.members().map(|(_, member)| member).collect();
        let start = format!("mpirun --with-ft ulfm -n {} konkordia graph run GRAPH", members.len());
        let world = World::open().map_err(|error| failed(error.to_string(), format!("then: {start}")))?;
        if world.size() != members.len() {
            let why = format!("mpirun has started {} processes, and the graph has {}", world.size(), members.len());
            return Err(failed(why, start));
        }
        let (arrived, order) = (BTreeMap::new(), BTreeMap::new());
        Ok(Rc::new(RefCell::new(Self { world, members, arrived, order })))
    }

    /// Takes what has arrived. True if there was something.
    fn pump(&mut self) -> bool {
        let mut found = false;
        while let Some(message) = self.world.receive() {
            found = true;
            let queue = self.arrived.entry((message.tag, message.from)).or_default();
            // What is left out is asked for again.
            if queue.len() < WAITING_MAX {
                queue.push_back(message.bytes);
                self.order.entry(message.tag).or_default().push_back(message.from);
            }
        }
        found
    }

    /// Waits until something has arrived, or `is_ready` is true, but not longer than `most`.
    pub fn wait(&mut self, most: Duration, mut is_ready: impl FnMut() -> bool) {
        let began = Instant::now();
        while !self.pump() && !is_ready() && began.elapsed() < most {
            std::thread::sleep(LOOK);
        }
    }

    /// Gives the last messages time to leave.
    pub fn flush(&mut self) {
        let began = Instant::now();
        while self.world.waiting() > 0 && began.elapsed() < LAST {
            self.pump();
            std::thread::sleep(LOOK);
        }
    }

    fn send(&mut self, to: usize, tag: u16, head: &[u8], image: &[u8]) -> bool {
        let mut bytes = Vec::with_capacity(image.len() + head.len() + 2);
        bytes.extend(image);
        bytes.extend(head);
        bytes.extend((head.len() as u16).to_le_bytes());
        self.world.send(to, tag, bytes)
    }

    fn take_of(&mut self, tag: u16, rank: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut bytes = self.arrived.get_mut(&(tag, rank))?.pop_front()?;
        let at = bytes.len().checked_sub(2)?;
        let length = usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let begins = at.checked_sub(length).filter(|_| length <= ROW_BYTES_MAX)?;
        let head = bytes[begins..at].to_vec();
        bytes.truncate(begins);
        Some((head, bytes))
    }
}

/// An edge.
pub struct Lane {
    post: Rc<RefCell<Post>>,
    down: u16,
    up: u16,
}

impl Lane {
    /// The edge with this number.
    pub fn new(post: Rc<RefCell<Post>>, number: usize) -> Self {
        let down = number as u16 * 2;
        Self { post, down, up: down + 1 }
    }

    /// Sends from the beginning of the edge to its end.
    pub fn send_down(&self, to: &str, head: &[u8], image: &[u8]) -> bool {
        let post = &mut *self.post.borrow_mut();
        post.members.iter().position(|member| member == to).is_some_and(|rank| post.send(rank, self.down, head, image))
    }

    /// Sends a row of messages from the end of the edge to its beginning.
    pub fn send_up(&self, rank: usize, row: &[u8]) {
        self.post.borrow_mut().send(rank, self.up, row, &[]);
    }

    /// A row of messages for the beginning of the edge, and who has sent it.
    pub fn take_up(&self) -> Option<(String, Vec<u8>)> {
        let post = &mut *self.post.borrow_mut();
        let rank = post.order.get_mut(&self.up)?.pop_front()?;
        let (row, _) = post.take_of(self.up, rank)?;
        Some((post.members[rank].clone(), row))
    }

    /// A message for the end of the edge from one rank.
    pub fn take_down(&self, rank: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let post = &mut *self.post.borrow_mut();
        post.order.remove(&self.down);
        post.take_of(self.down, rank)
    }

    /// Partners whose ranks have failed.
    pub fn dead(&self) -> Vec<String> {
        let post = self.post.borrow();
        post.world.failed().iter().filter_map(|rank| post.members.get(*rank)).cloned().collect()
    }
}
