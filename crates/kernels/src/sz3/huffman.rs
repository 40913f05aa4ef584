//! Huffman codes as SZ3 stores them: the tree node by node, then the codes from the high bit down.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most bits of a code. A longer one would need more symbols than an image has pixels.
const CODE_BITS_MAX: u32 = 56;
/// Codes up to this length are decoded with one look-up.
const TABLE_BITS: u32 = 12;

/// One node while the tree is made: a leaf has no children.
#[derive(Clone, Copy)]
struct Node {
    children: Option<(usize, usize)>,
    symbol: usize,
}

/// Appends the tree and the codes of `symbols`. `counts[s]` is how many of them are `s`.
///
/// # Panics
/// If there is no symbol.
pub(super) fn write(symbols: &[u16], counts: &[u64], out: &mut Vec<u8>) {
    let nodes = tree(counts);
    let lowest = counts.iter().position(|&count| count > 0).expect("there is a symbol");
    let (stored, codes) = number(&nodes, counts.len());
    out.extend((lowest as u32).to_le_bytes());
    out.extend((stored.len() as u32).to_be_bytes());
    // The number of nodes is enough here, because SZ3 makes room for eight times as many.
    out.extend((stored.len() as u32).to_be_bytes());
    out.push(0);
    let child_bytes = child_bytes(stored.len());
    for side in [|n: &Stored| n.left, |n: &Stored| n.right] {
        stored.iter().for_each(|node| out.extend(&side(node).to_le_bytes()[..child_bytes]));
    }
    for node in &stored {
        let symbol = if node.leaf { (node.symbol - lowest) as u32 } else { 0 };
        out.extend(symbol.to_le_bytes());
    }
    out.extend(stored.iter().map(|node| u8::from(node.leaf)));
    let bits: u64 = counts.iter().zip(&codes).map(|(count, code)| count * u64::from(code.1)).sum();
    out.extend(bits.div_ceil(8).to_le_bytes());
    out.reserve(bits.div_ceil(8) as usize);
    let (mut held, mut held_bits) = (0u64, 0u32);
    for &symbol in symbols {
        let (code, length) = codes[usize::from(symbol)];
        if held_bits + length > 64 {
            flush(&mut held, &mut held_bits, out);
        }
        held = held << length | code;
        held_bits += length;
    }
    flush(&mut held, &mut held_bits, out);
    if held_bits > 0 {
        out.push((held << (8 - held_bits)) as u8);
    }
}

/// Moves the whole bytes to `out`.
fn flush(held: &mut u64, held_bits: &mut u32, out: &mut Vec<u8>) {
    while *held_bits >= 8 {
        *held_bits -= 8;
        out.push((*held >> *held_bits) as u8);
    }
    *held &= (1 << *held_bits) - 1;
}

/// Bytes in which the number of a child is stored.
fn child_bytes(nodes: usize) -> usize {
    match nodes {
        0..=256 => 1,
        257..=65536 => 2,
        _ => 4,
    }
}

/// A Huffman tree; its root is the last node. It has at least two leaves, because SZ3 treats a code of no bits as a
/// special case.
fn tree(counts: &[u64]) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut heap = BinaryHeap::new();
    let mut leaf = |symbol: usize, count: u64, heap: &mut BinaryHeap<_>| {
        heap.push(Reverse((count, nodes.len())));
        nodes.push(Node { children: None, symbol });
    };
    for (symbol, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        leaf(symbol, count, &mut heap);
    }
    if heap.len() == 1 {
        let only = counts.iter().position(|&count| count > 0).expect("there is one");
        leaf(only, 0, &mut heap);
    }
    while let (Some(Reverse((a, left))), Some(Reverse((b, right)))) = (heap.pop(), heap.pop()) {
        heap.push(Reverse((a + b, nodes.len())));
        nodes.push(Node { children: Some((left, right)), symbol: 0 });
        if heap.len() == 1 {
            break;
        }
    }
    nodes
}

struct Stored {
    left: u32,
    right: u32,
    symbol: usize,
    leaf: bool,
}

/// The nodes in the order in which SZ3 numbers them (a node, all of its left, all of its right), and (code, bits) by
/// symbol.
fn number(nodes: &[Node], symbols: usize) -> (Vec<Stored>, Vec<(u64, u32)>) {
    let mut stored: Vec<Stored> = Vec::with_capacity(nodes.len());
    let mut codes = vec![(0u64, 0u32); symbols];
    // Node, its code and bits, and where its number is to be entered: the parent, and whether it is the right child.
    let mut open = vec![(nodes.len() - 1, 0u64, 0u32, None::<(usize, bool)>)];
    while let Some((node, code, bits, parent)) = open.pop() {
        assert!(bits <= CODE_BITS_MAX, "a tree over fewer than 2^38 symbols is not deeper");
        let index = stored.len();
        if let Some((parent, is_right)) = parent {
            *(if is_right { &mut stored[parent].right } else { &mut stored[parent].left }) = index as u32;
        }
        let Node { children, symbol } = nodes[node];
        stored.push(Stored { left: 0, right: 0, symbol, leaf: children.is_none() });
        match children {
            Some((left, right)) => {
                open.push((right, code << 1 | 1, bits + 1, Some((index, true))));
                open.push((left, code << 1, bits + 1, Some((index, false))));
            }
            // A lone symbol has two leaves; the code of either will do.
            None => codes[symbol] = (code, bits),
        }
    }
    (stored, codes)
}

/// Reads `many` symbols that [`write()`] wrote at the start of `input`, and moves `input` behind them. The bytes are
/// untrusted.
pub(super) fn read(input: &mut &[u8], many: usize) -> Option<Vec<u32>> {
    let lowest = u32::from_le_bytes(take(input)?);
    let nodes = u32::from_be_bytes(take(input)?) as usize;
    let (_room, _endian) = (take::<4>(input)?, take::<1>(input)?);
    let width = child_bytes(nodes);
    let stored = input.split_off(..nodes.checked_mul(2 * width + 5)?)?;
    let (children, rest) = stored.split_at(2 * width * nodes);
    let (symbols, leaves) = rest.split_at(4 * nodes);
    let child = |at: usize| children[at * width..(at + 1) * width].iter().rev().fold(0usize, |v, &b| v << 8 | usize::from(b));
    let tree: Vec<(usize, usize, u32)> = (0..nodes)
        .map(|n| {
            let symbol = u32::from_le_bytes(symbols[4 * n..4 * n + 4].try_into().expect("four bytes"));
            if leaves[n] != 0 { (0, 0, symbol.wrapping_add(lowest)) } else { (child(n), child(nodes + n), 0) }
        })
        .collect();
    // Children must come after their parents, so that every walk down the tree ends.
    let sound = |(n, &(left, right, _)): (usize, &(usize, usize, u32))| leaves[n] != 0 || (left > n && right > n);
    let inside = tree.iter().all(|&(left, right, _)| left < nodes && right < nodes);
    if nodes < 3 || leaves[0] != 0 || !inside || !tree.iter().enumerate().all(sound) {
        return None;
    }
    let bytes = usize::try_from(u64::from_le_bytes(take(input)?)).ok()?;
    let codes = input.split_off(..bytes)?;
    decode(&tree, leaves, codes, many)
}

fn decode(tree: &[(usize, usize, u32)], leaves: &[u8], codes: &[u8], many: usize) -> Option<Vec<u32>> {
    let step = |node: usize, bit: u64| if bit == 1 { tree[node].1 } else { tree[node].0 };
    let table: Vec<(u32, u32)> = (0..1u64 << TABLE_BITS)
        .map(|prefix| {
            let (mut node, mut bits) = (0, 0);
            while leaves[node] == 0 && bits < TABLE_BITS {
                bits += 1;
                node = step(node, prefix >> (TABLE_BITS - bits) & 1);
            }
            (node as u32, bits)
        })
        .collect();
    // Each symbol has one bit at least.
    if many > codes.len().checked_mul(8)? {
        return None;
    }
    let mut out = Vec::with_capacity(many);
    let (mut held, mut held_bits, mut at) = (0u64, 0u32, 0usize);
    let mut used = 0u64;
    for _ in 0..many {
        while held_bits <= 56 {
            held |= u64::from(codes.get(at).copied().unwrap_or(0)) << (56 - held_bits);
            at += 1;
            held_bits += 8;
        }
        let (node, mut bits) = table[(held >> (64 - TABLE_BITS)) as usize];
        let mut node = node as usize;
        while leaves[node] == 0 {
            if bits > CODE_BITS_MAX {
                return None;
            }
            node = step(node, held << bits >> 63);
            bits += 1;
        }
        held <<= bits;
        held_bits = held_bits.checked_sub(bits)?;
        used += u64::from(bits);
        out.push(tree[node].2);
    }
    (used <= 8 * codes.len() as u64).then_some(out)
}

/// The next bytes.
pub(super) fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn back(symbols: &[u16], range: usize) {
        let mut counts = vec![0; range];
        symbols.iter().for_each(|&s| counts[usize::from(s)] += 1);
        let mut out = Vec::new();
        write(symbols, &counts, &mut out);
        out.extend(b"rest");
        let mut input = &out[..];
        let got = read(&mut input, symbols.len()).unwrap();
        assert!(got.iter().map(|&s| s as u16).eq(symbols.iter().copied()));
        assert_eq!(input, b"rest");
    }

    proptest! {
        #[test]
        fn symbols_come_back(symbols in proptest::collection::vec(0u16..500, 1..3000)) {
            back(&symbols, 500);
        }

        #[test]
        fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..400), many in 0usize..100) {
            let _ = read(&mut &bytes[..], many);
        }
    }

    #[test]
    fn deep_trees_and_lone_symbols() {
        back(&[7; 1000], 8);
        // Counts as Fibonacci's numbers make the deepest tree.
        let mut symbols = Vec::new();
        let (mut a, mut b) = (1usize, 1usize);
        for symbol in 0..24u16 {
            symbols.extend(std::iter::repeat_n(symbol, a));
            (a, b) = (b, a + b);
        }
        back(&symbols, 24);
    }
}
