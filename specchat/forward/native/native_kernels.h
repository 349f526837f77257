// The kernels that others of these files call, as they are exported, and what they share with Python.

#pragma once

#include <vector>

#include "native_lanes.h"

// The memory of a buffer, which only grows.
template <class N>
N* sized(std::vector<N>& buffer, int64_t size) {
    if (int64_t(buffer.size()) < size) buffer.resize(size_t(size));
    return buffer.data();
}

// Outputs of a linear layer whose weights have one format (packed_linear.py), with an offset of the codes.
struct PackedPart {
    const uint8_t* weights;
    int64_t outputs, format, offset;
};

// Rows that follow those of the product before, times the parts of a layer, one above the other.
struct PackedProduct {
    const PackedPart* parts;
    int64_t part_count;
    const void* bias;  // or null
    int64_t count;     // of rows
};

// Rules of sampling (engine/sampling.py).
struct Rules {
    double temperature, top_p, min_p;  // 0: the highest logit; 1 and 0: nothing is left out
    int64_t top_k;                     // 0: all
    int64_t columns;                   // that may be sampled; those after them are padding
};

template <class T>
using RmsNorm = void(const T* rows, const T* weight, T* out, int64_t count, int64_t size, float epsilon, float offset);

template <class T>
using AddRmsNorm = void(const T* rows, const T* residual, const T* weight, T* sum, T* out, int64_t count, int64_t size,
                        float epsilon, float offset);

template <class T>
using ActivateAndMul = void(const T* gate_up, T* out, int64_t count, int64_t size);

template <class T>
using Linear = void(const T* rows, const uint32_t* weights, const T* bias, T* out, int64_t count, int64_t inputs,
                    int64_t outputs, int64_t threads);

template <class T>
using PackedLinear = void(const T* rows, const PackedPart* parts, int64_t part_count, const T* bias, T* out,
                          int64_t count, int64_t inputs, int64_t outputs, int64_t threads);

// rows [all counts, inputs], or [count, inputs] that all products have -> out [all counts, outputs]
template <class T>
using PackedProducts = void(const T* rows, const PackedProduct* products, int64_t product_count, T* out, int64_t inputs,
                            int64_t outputs, int64_t has_same_rows, int64_t threads);

// rows [count, hidden size] -> out, the same
template <class T>
using MixtureOfExperts = void(const T* rows, const struct Mixture* mixture, T* out, int64_t count, int64_t threads);

template <class T, class Stored = T>
using QkNormRope = void(const T* states, const T* q_norm, const T* k_norm, const T* v_norm, const T* cos, const T* sin,
                        T* queries, Stored* keys, Stored* values, int64_t count, int heads, int kv_heads, int size,
                        int rotary, int64_t stride, float epsilon, float offset);

template <class T, class Stored = T>
using Attention = void(const T* queries, const Stored* keys, const Stored* values, const uint8_t* allowed, T* out,
                       int64_t count, int heads, int kv_heads, int size, int64_t stride, int64_t kv_length,
                       int64_t threads, float scale, float cap, const T* sinks);

template <class T>
using RankRows = void(const T* logits, const Rules* rules, const uint32_t* keys, const int64_t* tokens,
                      int64_t* columns, float* scores, int64_t ranks, int64_t count, int64_t stride, int64_t threads);

template <class T>
using QkNormRopeInt8 = QkNormRope<T, int8_t>;

template <class T>
using AttentionInt8 = Attention<T, int8_t>;

// Declares the kernels of a name for both dtypes, and kernels<T>.NAME.
#define FOR_ALL_KERNELS(DO)              \
    DO(RmsNorm, rms_norm)                \
    DO(AddRmsNorm, add_rms_norm)         \
    DO(ActivateAndMul, silu_and_mul)     \
    DO(ActivateAndMul, gelu_and_mul)     \
    DO(Linear, linear)                   \
    DO(PackedLinear, packed_linear)      \
    DO(PackedProducts, packed_products)  \
    DO(MixtureOfExperts, mixture_of_experts) \
    DO(QkNormRope, qk_norm_rope)         \
    DO(Attention, attention)             \
    DO(QkNormRopeInt8, qk_norm_rope_int8) \
    DO(AttentionInt8, attention_int8)    \
    DO(RankRows, rank_rows)

extern "C" {
#define DECLARE(TYPE, NAME)                \
    extern TYPE<float>* NAME##_float32;    \
    extern TYPE<bfloat16>* NAME##_bfloat16;
FOR_ALL_KERNELS(DECLARE)
#undef DECLARE
}
