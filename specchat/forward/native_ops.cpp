// What happens between the products of a layer, for the few rows of a decoding pass: norms, turns, gates, attention, and
// what products of bytes need before and after.
//
// Each function is one loop over rows that computes in float32 and rounds once, when it stores. A row is computed alike
// in any company, and by one thread: what is done here takes microseconds, and waking others takes longer. Knows
// addresses and counts; who calls has checked them. Compiled by native.py on the machine that runs it.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int LARGEST_HEAD = 512;

struct bfloat16 {
    uint16_t bits;
};

inline float widened(float number) { return number; }

inline float widened(bfloat16 number) {
    const uint32_t bits = uint32_t(number.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

template <class T>
inline T narrowed(float number);

template <>
inline float narrowed(float number) {
    return number;
}

// To the nearest, and of two that are as near to the even one; a number that is none stays none.
template <>
inline bfloat16 narrowed(float number) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return {uint16_t((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded)};
}

// e^x within two units in the last place, and 0 where a float would be denormal; without a branch or a call, so that
// loops over it become vectors (the polynomial of Cephes' expf).
inline float exponential(float x) {
    const float within = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
    const float whole = std::nearbyint(within * 1.44269504f);
    const float rest = within - whole * 0.693359375f + whole * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    const int32_t bits = (int32_t(whole) + 127) * (1 << 23);
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : sum * power;
}

template <class T>
void norm(const T* row, const T* weight, T* out, int64_t size, float epsilon) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < size; i++) squares += widened(row[i]) * widened(row[i]);
    const float scale = 1.0f / std::sqrt(squares / float(size) + epsilon);
#pragma omp simd
    for (int64_t i = 0; i < size; i++) out[i] = narrowed<T>(widened(row[i]) * scale * widened(weight[i]));
}

template <class T>
void add(const T* rows, const T* more, const T* weight, T* sum, T* out, int64_t count, int64_t size, float epsilon) {
    for (int64_t row = 0; row < count; row++, rows += size, more += size, sum += size, out += size) {
#pragma omp simd
        for (int64_t i = 0; i < size; i++) sum[i] = narrowed<T>(widened(rows[i]) + widened(more[i]));
        norm(sum, weight, out, size, epsilon);
    }
}

template <class T>
void gate(const T* both, T* out, int64_t count, int64_t size) {
    for (int64_t row = 0; row < count; row++, both += 2 * size, out += size) {
        const T* up = both + size;
#pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            const float gated = widened(both[i]);
            out[i] = narrowed<T>(gated / (1.0f + exponential(-gated)) * widened(up[i]));
        }
    }
}

// Halves layout; the first half of the sine is negative. Without a weight there is no norm before the turn.
template <class T>
void turn_head(const T* head, const T* weight, const T* cosine, const T* sine, T* out, int size, float epsilon) {
    T normed[LARGEST_HEAD];
    if (weight) {
        norm(head, weight, normed, size, epsilon);
        head = normed;
    }
    const int half = size / 2;
#pragma omp simd
    for (int i = 0; i < half; i++) {
        const float first = widened(head[i]), second = widened(head[i + half]);
        out[i] = narrowed<T>(first * widened(cosine[i]) + second * widened(sine[i]));
        out[i + half] = narrowed<T>(second * widened(cosine[i + half]) + first * widened(sine[i + half]));
    }
}

// states [count, heads + 2 kv_heads, size]; cosine, sine [count, size] -> queries [heads, count, size], and keys and
// values behind the sure ones of a text: `stride` numbers lie between two of their heads.
template <class T>
void turn(const T* states, const T* query_norm, const T* key_norm, const T* cosine, const T* sine, T* queries, T* keys,
          T* values, int64_t count, int heads, int kv_heads, int size, int64_t stride, float epsilon) {
    for (int64_t row = 0; row < count; row++, cosine += size, sine += size) {
        for (int head = 0; head < heads; head++, states += size)
            turn_head(states, query_norm, cosine, sine, queries + (head * count + row) * size, size, epsilon);
        for (int head = 0; head < kv_heads; head++, states += size)
            turn_head(states, key_norm, cosine, sine, keys + head * stride + row * size, size, epsilon);
        for (int head = 0; head < kv_heads; head++, states += size)
            std::memcpy(values + head * stride + row * size, states, sizeof(T) * size);
    }
}

void softmax(float* scores, int64_t width) {
    float largest = -INFINITY, total = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < width; i++) largest = scores[i] > largest ? scores[i] : largest;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < width; i++) total += scores[i] = exponential(scores[i] - largest);
    const float scale = 1.0f / total;
#pragma omp simd
    for (int64_t i = 0; i < width; i++) scores[i] *= scale;
}

// queries [heads, count, size]; keys, values [kv_heads, .., size] of which the first `width` are looked at; `mask`, if
// any, is added to the scores [count, width] -> out [count, heads, size]. `room` holds
// heads / kv_heads * count * (2 size + width) floats. Heads that share keys go through them together, so that each key
// and value is widened once.
template <class T>
void attend(const T* queries, const T* keys, const T* values, const T* mask, T* out, int64_t count, int heads,
            int kv_heads, int size, int64_t stride, int64_t width, float* room) {
    const int shared = heads / kv_heads;
    const int64_t rows = shared * count;
    const float scale = 1.0f / std::sqrt(float(size));
    float *asked = room, *mixed = asked + rows * size, *scores = mixed + rows * size, wide[LARGEST_HEAD];
    for (int group = 0; group < kv_heads; group++, keys += stride, values += stride, queries += rows * size) {
        for (int64_t i = 0; i < rows * size; i++) asked[i] = widened(queries[i]) * scale, mixed[i] = 0;
        for (int64_t key = 0; key < width; key++) {
            for (int i = 0; i < size; i++) wide[i] = widened(keys[key * size + i]);
            for (int64_t row = 0; row < rows; row++) {
                float score = 0;
                const float* query = asked + row * size;
#pragma omp simd reduction(+ : score)
                for (int i = 0; i < size; i++) score += query[i] * wide[i];
                scores[row * width + key] = score;
            }
        }
        for (int64_t row = 0; row < rows; row++) {
            float* own = scores + row * width;
            const T* added = mask ? mask + row % count * width : nullptr;
            if (added)
                for (int64_t key = 0; key < width; key++) own[key] += widened(added[key]);
            softmax(own, width);
        }
        for (int64_t value = 0; value < width; value++) {
            for (int i = 0; i < size; i++) wide[i] = widened(values[value * size + i]);
            for (int64_t row = 0; row < rows; row++) {
                const float share = scores[row * width + value];
                float* sum = mixed + row * size;
#pragma omp simd
                for (int i = 0; i < size; i++) sum[i] += share * wide[i];
            }
        }
        for (int64_t row = 0; row < rows; row++) {
            T* to = out + (row % count * heads + group * shared + row / count) * size;
            for (int i = 0; i < size; i++) to[i] = narrowed<T>(mixed[row * size + i]);
        }
    }
}

// Each row by a scale of its own, in bytes around `zero`, the largest number `top` away from it.
template <class T>
void shrink(const T* rows, uint8_t* small, float* scales, int64_t count, int64_t size, int top, int zero) {
    for (int64_t row = 0; row < count; row++, rows += size, small += size) {
        float largest = 1e-12f;
#pragma omp simd reduction(max : largest)
        for (int64_t i = 0; i < size; i++) {
            const float number = std::fabs(widened(rows[i]));
            largest = number > largest ? number : largest;
        }
        const float scale = scales[row] = largest / float(top);
#pragma omp simd
        for (int64_t i = 0; i < size; i++)
            small[i] = uint8_t(int32_t(std::nearbyint(widened(rows[i]) / scale)) + zero);
    }
}

// The other way: sums of such bytes, each row by its scale, and the bias, if any.
template <class T>
void widen(const float* sums, const float* scales, const T* bias, T* out, int64_t count, int64_t size) {
    for (int64_t row = 0; row < count; row++, sums += size, out += size) {
        const float scale = scales[row];
#pragma omp simd
        for (int64_t i = 0; i < size; i++) out[i] = narrowed<T>(sums[i] * scale + (bias ? widened(bias[i]) : 0.0f));
    }
}

}  // namespace

#define FOR_NUMBERS(T, NAME)                                                                                           \
    void norm_##NAME(const T* rows, const T* weight, T* out, int64_t count, int64_t size, float epsilon) {             \
        for (int64_t row = 0; row < count; row++) norm(rows + row * size, weight, out + row * size, size, epsilon);    \
    }                                                                                                                  \
    void add_##NAME(const T* rows, const T* more, const T* weight, T* sum, T* out, int64_t count, int64_t size,        \
                    float epsilon) {                                                                                   \
        add(rows, more, weight, sum, out, count, size, epsilon);                                                       \
    }                                                                                                                  \
    void gate_##NAME(const T* both, T* out, int64_t count, int64_t size) { gate(both, out, count, size); }             \
    void turn_##NAME(const T* states, const T* query_norm, const T* key_norm, const T* cosine, const T* sine,          \
                     T* queries, T* keys, T* values, int64_t count, int heads, int kv_heads, int size, int64_t stride, \
                     float epsilon) {                                                                                  \
        turn(states, query_norm, key_norm, cosine, sine, queries, keys, values, count, heads, kv_heads, size, stride,  \
             epsilon);                                                                                                 \
    }                                                                                                                  \
    void attend_##NAME(const T* queries, const T* keys, const T* values, const T* mask, T* out, int64_t count,         \
                       int heads, int kv_heads, int size, int64_t stride, int64_t width, float* room) {                \
        attend(queries, keys, values, mask, out, count, heads, kv_heads, size, stride, width, room);                   \
    }                                                                                                                  \
    void shrink_##NAME(const T* rows, uint8_t* small, float* scales, int64_t count, int64_t size, int top, int zero) { \
        shrink(rows, small, scales, count, size, top, zero);                                                           \
    }                                                                                                                  \
    void widen_##NAME(const float* sums, const float* scales, const T* bias, T* out, int64_t count, int64_t size) {    \
        widen(sums, scales, bias, out, count, size);                                                                   \
    }

extern "C" {
FOR_NUMBERS(float, float32)
FOR_NUMBERS(bfloat16, bfloat16)
}
