// The text of the kernels, and the list of those that can be launched; no #pragma once, for each target includes it
// with names of its own.
#include "../kernels/common.cu"

#include "../kernels/convert.cu"

#include "../kernels/fixed.cu"

#include "../kernels/bitshuffle.cu"

#include "../kernels/lz4.cu"

#include "../kernels/above.cu"

#include "../kernels/sparse.cu"

#include "../kernels/gather.cu"

#include "../kernels/sums.cu"

#include "../kernels/stats.cu"

#include "../kernels/unpack.cu"

#include "../kernels/peakfinder8.cu"

#include "../kernels/azimuthal.cu"

#define TYPED(name) \
    ENTRY(name##_int16), ENTRY(name##_uint16), ENTRY(name##_int32), ENTRY(name##_uint32), ENTRY(name##_float32)

// ENTRY is what a target makes of a kernel.
#define KERNELS \
    TYPED(convert), TYPED(convert_tracking), ENTRY(track_only), TYPED(convert_series), TYPED(convert_fixed), \
    ENTRY(bitshuffle), ENTRY(lz4_blocks), ENTRY(bslz4_blocks), ENTRY(chunk_places), ENTRY(chunk_gather), \
    TYPED(count_above), ENTRY(keep_images), TYPED(row_counts), ENTRY(row_places), TYPED(collect), \
    ENTRY(gather_words), ENTRY(take_words), TYPED(mark_absent), TYPED(gather_counts), TYPED(share_out), \
    ENTRY(accumulate_int32), ENTRY(accumulate_float32), ENTRY(narrow_int16), ENTRY(narrow_uint16), \
    ENTRY(narrow_int32), ENTRY(narrow_uint32), TYPED(negatives), TYPED(stats), TYPED(stats_within), \
    ENTRY(merge_stats_integers), ENTRY(merge_stats_floats), ENTRY(chunk_blocks), ENTRY(unpack_blocks), \
    ENTRY(chunk_verdicts), TYPED(ring_limits), ENTRY(ring_background), TYPED(stands_out), \
    ENTRY(group_seeds), TYPED(group_spots), TYPED(integrate_whole), TYPED(integrate_split), \
    ENTRY(bins_whole_integers), ENTRY(bins_whole_floats), ENTRY(bins_split)
