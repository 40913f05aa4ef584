// Unpacks a block of LZ4. What comes over the network is never trusted: each length is compared with what is left.

export class Lz4Error extends Error {}

function copyWithin(bytes: Uint8Array, to: number, distance: number, length: number): void {
  if (distance >= length) {
    bytes.copyWithin(to, to - distance, to - distance + length);
  } else if (distance === 1) {
    bytes.fill(bytes[to - 1] as number, to, to + length);
  } else {
    for (let n = to; n < to + length; n++) bytes[n] = bytes[n - distance] as number;
  }
}

function copyLiterals(source: Uint8Array, from: number, target: Uint8Array, to: number, length: number): void {
  // A view costs more than it saves for the short runs that are usual.
  if (length > 64) target.set(source.subarray(from, from + length), to);
  else for (let n = 0; n < length; n++) target[to + n] = source[from + n] as number;
}

/** Fills `target` with the unpacked block; throws if the block is wrong or does not have exactly so many bytes. */
export function unpackLz4(source: Uint8Array, target: Uint8Array): void {
  let from = 0;
  let to = 0;

  const lengthFrom = (begin: number): number => {
    let length = begin;
    if (begin < 15) return length;
    for (;;) {
      if (from >= source.length) throw new Lz4Error("a length of the LZ4 block is cut off");
      const more = source[from++] as number;
      length += more;
      if (more < 255) return length;
    }
  };

  while (from < source.length) {
    const token = source[from++] as number;
    const literals = lengthFrom(token >> 4);
    if (literals > source.length - from) throw new Lz4Error("the LZ4 block ends within literals");
    if (literals > target.length - to) throw new Lz4Error("the LZ4 block has more bytes than announced");
    copyLiterals(source, from, target, to, literals);
    from += literals;
    to += literals;
    if (from === source.length) break;

    if (source.length - from < 2) throw new Lz4Error("the LZ4 block ends within a distance");
    const distance = (source[from] as number) | ((source[from + 1] as number) << 8);
    from += 2;
    if (distance === 0 || distance > to) throw new Lz4Error("a distance of the LZ4 block points before its begin");
    const length = lengthFrom(token & 15) + 4;
    if (length > target.length - to) throw new Lz4Error("the LZ4 block has more bytes than announced");
    copyWithin(target, to, distance, length);
    to += length;
  }
  if (to !== target.length) throw new Lz4Error("the LZ4 block has fewer bytes than announced");
}
