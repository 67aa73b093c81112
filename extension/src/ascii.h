/*
 * ascii.h
 *	  How much of a text is ASCII: what most texts are, and what needs no look at its characters.
 */
#ifndef INRUSH_ASCII_H
#define INRUSH_ASCII_H

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* Whether eight bytes are ASCII and not zero. */
static inline bool
inrush_ascii_8(uint64 bytes)
{
	const uint64 high = UINT64CONST(0x8080808080808080);

	/* A high bit, or a byte that does not carry into it when 0x7F is added to its other bits: they are zero. */
	return ((bytes | ~((bytes & ~high) + ~high)) & high) == 0;
}

/* Whether sixteen bytes are: greater than zero, as signed numbers. */
static inline bool
inrush_ascii_16(const char *bytes)
{
#if defined(__SSE2__)
	__m128i		all = _mm_loadu_si128((const __m128i *) bytes);

	return _mm_movemask_epi8(_mm_cmpgt_epi8(all, _mm_setzero_si128())) == 0xFFFF;
#elif defined(__ARM_NEON) && defined(__aarch64__)
	return vminvq_s8(vld1q_s8((const int8_t *) bytes)) > 0;
#else
	return inrush_ascii_8(inrush_get64(bytes)) && inrush_ascii_8(inrush_get64(bytes + 8));
#endif
}

/*
 * How many bytes at the front are ASCII and not zero: text in every encoding of a server, so that what comes behind
 * them begins a character. The last bytes are looked at together with some of those before them.
 */
static inline uint32
inrush_ascii_prefix(const char *value, uint32 size)
{
	uint32		at = 0;

	if (size >= 16)
	{
		uint32		last = size - 16;

		while (at <= last && inrush_ascii_16(value + at))
			at = at < last ? Min(at + 16, last) : size;
	}
	else if (size >= 8)
		at = inrush_ascii_8(inrush_get64(value)) && inrush_ascii_8(inrush_get64(value + size - 8)) ? size : 0;
	else if (size >= 4)
		at = inrush_ascii_8(inrush_get32(value) | (uint64) inrush_get32(value + size - 4) << 32) ? size : 0;
	while (at < size && (signed char) value[at] > 0)
		at++;
	return at;
}

#endif							/* INRUSH_ASCII_H */
