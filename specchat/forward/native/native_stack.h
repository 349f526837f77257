// What describes a stack of decoder layers and a pass over it, for native_stack.cpp and those that call it.

#pragma once

#include <vector>

#include "native_kernels.h"

// The structures have fields of 8 bytes only, so that Python describes them without gaps.

struct LinearLayer {
    const PackedPart* parts;  // null for a layer of floats
    int64_t part_count;
    const uint32_t* floats;
    const void* bias;
    int64_t inputs, padded_inputs, outputs;  // rows are padded with zeros
};

// A router, and the layers of all experts in blocks of GGUF files. Experts of a layer have the same sizes.
struct Mixture {
    LinearLayer router;
    const LinearLayer *gate_up, *down;  // of each expert
    int64_t experts, chosen;            // of all, for a row
    int64_t has_float32_router;         // else it has the dtype of the rows
    int64_t is_normalized, is_gelu;     // the weights of a row's experts add up to 1
};

struct AttentionKind {
    int64_t heads, kv_heads, size;
    double epsilon, norm_offset, scale, cap;
    const void* v_norm;
};

// Norms that a family does not have are null. A mixture computes instead of gate_up and down, which are of one expert.
struct Layer {
    const void *input_norm, *attention_output_norm, *mlp_norm, *mlp_output_norm, *q_norm, *k_norm, *sinks;
    LinearLayer qkv, attention_output, gate_up, down;
    int64_t kind, window, kv_layer, writes_kv, is_gelu;
    const Mixture* mixture;
};

struct Stack {
    const Layer* layers;
    const AttentionKind* kinds;
    int64_t hidden_size;
    double epsilon, norm_offset;
    const void* norm;
};

// The rows of a pass that belong to one text, and the rows of its KV cache that they follow and see.
struct Segment {
    const uint8_t* const* masks;        // of each window; null: each row sees all rows
    void *const *keys, *const *values;  // of each layer
    const int64_t* strides;             // numbers between two heads of a layer
    int64_t count, kv_length, first_row, is_int8;
};

// Rows [count, hidden_size] of one pass, those of one text after those of another.
struct Pass {
    const void *rows, *attention_input;  // the input of the first attention where it is not the normalized rows
    void *out, *selected;                // after the final norm; the states of selected layers, side by side
    const int64_t* selected_layers;      // -1: after the final norm
    int64_t selected_count, count, layer_count;
    const int64_t* rotary;                // numbers of a head that are rotated, for each kind of attention
    const void *const *cos, *const *sin;  // of each kind [count, rotary]
    const Segment* segments;
    int64_t segment_count, threads;
};

template <class T>
using DecoderStack = void(const Stack* stack, const Pass* pass);

extern "C" {
extern DecoderStack<float>* decoder_stack_float32;
extern DecoderStack<bfloat16>* decoder_stack_bfloat16;
}

template <class T>
struct Kernels {
#define PICK(TYPE, NAME)              \
    static TYPE<T>* NAME() {          \
        if constexpr (std::is_same_v<T, float>) \
            return NAME##_float32;    \
        else                          \
            return NAME##_bfloat16;   \
    }
    FOR_ALL_KERNELS(PICK)
#undef PICK
};

// rows [count, inputs] times a layer -> buffer [count, outputs]
template <class T>
T* multiply(const LinearLayer& linear, const T* rows, int64_t count, int64_t threads, std::vector<T>& padded,
            std::vector<T>& buffer) {
    T* out = sized(buffer, count * linear.outputs);
    const T* bias = static_cast<const T*>(linear.bias);
    const int64_t size = linear.inputs, padded_size = linear.padded_inputs;
    if (size != padded_size) {
        T* wider = sized(padded, count * padded_size);
        for (int64_t row = 0; row < count; row++) {
            std::memcpy(wider + row * padded_size, rows + row * size, sizeof(T) * size);
            std::memset(static_cast<void*>(wider + row * padded_size + size), 0, sizeof(T) * (padded_size - size));
        }
        rows = wider;
    }
    if (linear.parts)
        Kernels<T>::packed_linear()(rows, linear.parts, linear.part_count, bias, out, count, padded_size,
                                    linear.outputs, threads);
    else
        Kernels<T>::linear()(rows, linear.floats, bias, out, count, padded_size, linear.outputs, threads);
    return out;
}
