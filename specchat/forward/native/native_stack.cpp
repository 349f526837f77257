// A pass over a stack of decoder layers in one call: the operations of decoder_layer.py, with the same kernels in the
// same order, so with the same bits. What it saves is the time between the kernels, which takes as long as they do
// in a small network.
//
// The functions know addresses and counts; native_stack.py has checked them.

#include "native_stack.h"

namespace {

template <class T>
struct Workspace {
    std::vector<T> hidden, normed, padded, qkv, queries, attended, output, gate_up, activated;
};

template <class T>
class StackPass {
   public:
    StackPass(const Stack& stack, const Pass& pass, Workspace<T>& space) : stack(stack), pass(pass), space(space) {}

    void run() {
        const int64_t numbers = pass.count * stack.hidden_size;
        T* hidden = sized(space.hidden, numbers);
        T* normed = sized(space.normed, numbers);
        std::memcpy(hidden, pass.rows, sizeof(T) * numbers);
        select(0, hidden);
        const T* input = static_cast<const T*>(pass.attention_input);
        if (!input) input = norm(hidden, stack.layers[0].input_norm, normed);
        for (int64_t index = 0; index < pass.layer_count; index++) {
            const Layer& layer = stack.layers[index];
            T* output = attend(layer, input);
            if (layer.attention_output_norm) norm(output, layer.attention_output_norm, output);
            input = add(hidden, output, layer.mlp_norm, normed);
            output = mlp(layer, input);
            if (layer.mlp_output_norm) norm(output, layer.mlp_output_norm, output);
            const bool is_last = index + 1 == pass.layer_count;
            input = add(hidden, output, is_last ? stack.norm : stack.layers[index + 1].input_norm, normed);
            select(index + 1, hidden);
        }
        std::memcpy(pass.out, input, sizeof(T) * numbers);
        select(-1, input);
    }

   private:
    static constexpr int64_t MIN_SHARED_NUMBERS = 1 << 13;  // for fewer, starting a thread takes longer than the work

    const Stack& stack;
    const Pass& pass;
    Workspace<T>& space;

    // Calls work(first, count) for parts of all rows, which have `size` numbers each.
    template <class Work>
    void share_rows(int64_t size, const Work& work) const {
        in_parallel(pass.count * size < MIN_SHARED_NUMBERS ? 1 : pass.threads, [&](int64_t part, int64_t parts) {
            const int64_t first = pass.count * part / parts, last = pass.count * (part + 1) / parts;
            if (first < last) work(first, last - first);
        });
    }

    // Normalized rows in `out`, or the rows themselves.
    const T* norm(const T* rows, const void* weight, T* out) const {
        if (!weight) return rows;
        share_rows(stack.hidden_size, [&](int64_t first, int64_t count) {
            const int64_t offset = first * stack.hidden_size;
            Kernels<T>::rms_norm()(rows + offset, static_cast<const T*>(weight), out + offset, count, stack.hidden_size,
                                   float(stack.epsilon), float(stack.norm_offset));
        });
        return out;
    }

    // Adds the output of a module to the hidden states; returns what the next module reads.
    const T* add(T* hidden, const T* output, const void* weight, T* normed) const {
        if (weight) {
            share_rows(stack.hidden_size, [&](int64_t first, int64_t count) {
                const int64_t offset = first * stack.hidden_size;
                Kernels<T>::add_rms_norm()(hidden + offset, output + offset, static_cast<const T*>(weight),
                                           hidden + offset, normed + offset, count, stack.hidden_size,
                                           float(stack.epsilon), float(stack.norm_offset));
            });
            return normed;
        }
        for (int64_t i = 0; i < pass.count * stack.hidden_size; i++)
            hidden[i] = from_float<T>(to_float(hidden[i]) + to_float(output[i]));
        return hidden;
    }

    T* multiply(const LinearLayer& linear, const T* rows, std::vector<T>& buffer) const {
        return ::multiply(linear, rows, pass.count, pass.threads, space.padded, buffer);
    }

    T* attend(const Layer& layer, const T* input) const {
        const T* qkv = multiply(layer.qkv, input, space.qkv);
        const AttentionKind& kind = stack.kinds[layer.kind];
        sized(space.queries, pass.count * kind.heads * kind.size);
        sized(space.attended, pass.count * kind.heads * kind.size);
        for (int64_t index = 0, row = 0; index < pass.segment_count; row += pass.segments[index++].count) {
            const Segment& segment = pass.segments[index];
            if (segment.is_int8)
                attend_over<int8_t>(segment, row, layer, kind, qkv, Kernels<T>::qk_norm_rope_int8(),
                                    Kernels<T>::attention_int8());
            else
                attend_over<T>(segment, row, layer, kind, qkv, Kernels<T>::qk_norm_rope(), Kernels<T>::attention());
        }
        return multiply(layer.attention_output, space.attended.data(), space.output);
    }

    // The rows of one text, which begin at `row` of the pass.
    template <class Stored>
    void attend_over(const Segment& segment, int64_t row, const Layer& layer, const AttentionKind& kind, const T* qkv,
                     QkNormRope<T, Stored>* qk_norm_rope, Attention<T, Stored>* attention) const {
        const int heads = int(kind.heads), kv_heads = int(kind.kv_heads), size = int(kind.size);
        Stored* keys = static_cast<Stored*>(segment.keys[layer.kv_layer]);
        Stored* values = static_cast<Stored*>(segment.values[layer.kv_layer]);
        const int64_t stride = segment.strides[layer.kv_layer], rotary = pass.rotary[layer.kind];
        const int64_t row_size = std::is_same_v<Stored, int8_t> ? size + int64_t(sizeof(float)) : size;
        const int64_t new_rows = segment.first_row * row_size, width = kind.heads * kind.size;
        T* queries = space.queries.data() + row * width;
        qk_norm_rope(qkv + row * layer.qkv.outputs, static_cast<const T*>(layer.q_norm),
                     static_cast<const T*>(layer.k_norm), static_cast<const T*>(kind.v_norm),
                     static_cast<const T*>(pass.cos[layer.kind]) + row * rotary,
                     static_cast<const T*>(pass.sin[layer.kind]) + row * rotary, queries, keys + new_rows,
                     values + new_rows, segment.count, heads, layer.writes_kv ? kv_heads : 0, size, int(rotary),
                     stride, float(kind.epsilon), float(kind.norm_offset));
        attention(queries, keys, values, segment.masks[layer.window], space.attended.data() + row * width,
                  segment.count, heads, kv_heads, size, stride, segment.kv_length, pass.threads,
                  float(kind.scale), float(kind.cap), static_cast<const T*>(layer.sinks));
    }

    T* mlp(const Layer& layer, const T* input) const {
        if (layer.mixture) {
            T* out = sized(space.output, pass.count * stack.hidden_size);
            Kernels<T>::mixture_of_experts()(input, layer.mixture, out, pass.count, pass.threads);
            return out;
        }
        const T* gate_up = multiply(layer.gate_up, input, space.gate_up);
        T* activated = sized(space.activated, pass.count * layer.down.inputs);
        const auto activate = layer.is_gelu ? Kernels<T>::gelu_and_mul() : Kernels<T>::silu_and_mul();
        const int64_t size = layer.down.inputs;
        share_rows(size, [&](int64_t first, int64_t count) {
            activate(gate_up + first * 2 * size, activated + first * size, count, size);
        });
        return multiply(layer.down, activated, space.output);
    }

    // Copies rows where the states of this layer were asked for.
    void select(int64_t layer, const T* rows) const {
        const int64_t size = stack.hidden_size;
        for (int64_t place = 0; place < pass.selected_count; place++) {
            if (pass.selected_layers[place] != layer) continue;
            T* to = static_cast<T*>(pass.selected) + place * size;
            for (int64_t row = 0; row < pass.count; row++)
                std::memcpy(to + row * pass.selected_count * size, rows + row * size, sizeof(T) * size);
        }
    }
};

template <class T>
void decoder_stack(const Stack* stack, const Pass* pass) {
    thread_local Workspace<T> space;
    StackPass<T>(*stack, *pass, space).run();
}

}  // namespace

extern "C" {
EXPORT(decoder_stack)

// The sizes of a layer, a kind of attention, a stack, a segment and a pass, which Python compares with its own.
int64_t stack_bytes(int64_t index) {
    const int64_t sizes[] = {sizeof(Layer), sizeof(AttentionKind), sizeof(Stack), sizeof(Segment), sizeof(Pass)};
    return sizes[index];
}
}
