// A mixture of experts in one call: the operations of moe.py for experts in blocks of GGUF files.
//
// All experts that the rows of a pass chose are multiplied in one parallel region, and those of the second product in
// another: the products of one expert are too short to start threads for them. A row has the same bits in every batch,
// since each number is computed from its row alone, in the same order. The functions know addresses and counts;
// native_mixture.py has checked them.

#include <algorithm>
#include <vector>

#include "native_stack.h"

namespace {

constexpr int64_t MIN_SHARED_NUMBERS = 1 << 13;   // for fewer, starting a thread takes longer than the work
constexpr int64_t MIN_SHARED_PRODUCTS = 1 << 17;  // the same of multiplications

template <class T>
struct Workspace {
    std::vector<float> wide_rows, wide_padded, wide_scores, probabilities, weights;
    std::vector<T> padded, scores, gathered, gate_up, inner, outputs;
    std::vector<int64_t> chosen, places, counts, ends;  // places: of each choice among the rows by expert
    std::vector<PackedProduct> products;
};

template <class T>
class MixturePass {
   public:
    MixturePass(const Mixture& mixture, int64_t count, int64_t threads, Workspace<T>& space)
        : mixture(mixture), count(count), pairs(count * mixture.chosen), threads(threads), space(space) {}

    void run(const T* rows, T* out) {
        const int64_t size = mixture.gate_up[0].inputs, inner_size = mixture.down[0].inputs;
        choose(rows);
        sort();
        const T* gate_up = multiply(mixture.gate_up, gather(rows, size), space.gate_up, count == 1);
        T* inner = sized(space.inner, pairs * inner_size);
        const auto activate = mixture.is_gelu ? Kernels<T>::gelu_and_mul() : Kernels<T>::silu_and_mul();
        share(pairs, inner_size, [&](int64_t first, int64_t part) {
            activate(gate_up + first * 2 * inner_size, inner + first * inner_size, part, inner_size);
        });
        const T* outputs = multiply(mixture.down, inner, space.outputs, false);
        share(count, size * mixture.chosen, [&](int64_t first, int64_t part) {
            for (int64_t row = first; row < first + part; row++) add_up(outputs, row, size, out + row * size);
        });
    }

   private:
    const Mixture& mixture;
    const int64_t count, pairs, threads;
    Workspace<T>& space;

    // Calls work(first, part) for parts of all rows, each of so many numbers.
    template <class Work>
    void share(int64_t rows, int64_t size, const Work& work) const {
        in_parallel(rows * size < MIN_SHARED_NUMBERS ? 1 : threads, [&](int64_t part, int64_t parts) {
            const int64_t first = rows * part / parts, last = rows * (part + 1) / parts;
            if (first < last) work(first, last - first);
        });
    }

    // The experts of all rows, and their weights.
    void choose(const T* rows) {
        const LinearLayer& router = mixture.router;
        const int64_t router_threads = count * router.inputs * router.outputs < MIN_SHARED_PRODUCTS ? 1 : threads;
        sized(space.chosen, pairs);
        sized(space.weights, pairs);
        if (!mixture.has_float32_router || std::is_same_v<T, float>) {
            const T* scores = ::multiply(router, rows, count, router_threads, space.padded, space.scores);
            return choose_by(scores);
        }
        float* wide = sized(space.wide_rows, count * router.inputs);
        for (int64_t i = 0; i < count * router.inputs; i++) wide[i] = to_float(rows[i]);
        choose_by(::multiply(router, wide, count, router_threads, space.wide_padded, space.wide_scores));
    }

    template <class Score>
    void choose_by(const Score* scores) {
        float* probabilities = sized(space.probabilities, mixture.experts);
        for (int64_t row = 0; row < count; row++, scores += mixture.experts) {
            softmax(scores, probabilities);
            take_highest(probabilities, space.chosen.data() + row * mixture.chosen,
                         space.weights.data() + row * mixture.chosen);
        }
    }

    template <class Score>
    void softmax(const Score* scores, float* probabilities) const {
        float highest = to_float(scores[0]), sum = 0;
        for (int64_t i = 1; i < mixture.experts; i++) highest = std::max(highest, to_float(scores[i]));
#pragma omp simd
        for (int64_t i = 0; i < mixture.experts; i++) probabilities[i] = exponential(to_float(scores[i]) - highest);
        for (int64_t i = 0; i < mixture.experts; i++) sum += probabilities[i];
        for (int64_t i = 0; i < mixture.experts; i++) probabilities[i] /= sum;
    }

    // The highest first; of equal ones the first. Always other experts, also where probabilities are NaN.
    void take_highest(float* probabilities, int64_t* experts, float* weights) const {
        float sum = 0;
        for (int64_t choice = 0; choice < mixture.chosen; choice++) {
            int64_t best = -1;
            for (int64_t i = 0; i < mixture.experts; i++) {
                if (best >= 0 && !(probabilities[i] > probabilities[best])) continue;
                if (std::find(experts, experts + choice, i) == experts + choice) best = i;
            }
            experts[choice] = best;
            sum += weights[choice] = probabilities[best];
        }
        if (!mixture.is_normalized) return;
        for (int64_t choice = 0; choice < mixture.chosen; choice++) weights[choice] /= sum + 1e-20f;
    }

    // Where each choice of a row is among those of all rows, by expert.
    void sort() {
        int64_t *counts = sized(space.counts, mixture.experts), *ends = sized(space.ends, mixture.experts);
        int64_t* places = sized(space.places, pairs);
        std::fill(counts, counts + mixture.experts, 0);
        for (int64_t pair = 0; pair < pairs; pair++) counts[space.chosen[size_t(pair)]]++;
        for (int64_t expert = 0, end = 0; expert < mixture.experts; end += counts[expert++]) ends[expert] = end;
        for (int64_t pair = 0; pair < pairs; pair++) places[pair] = ends[space.chosen[size_t(pair)]]++;
    }

    // The rows by expert; the only row is the same for all of its experts.
    const T* gather(const T* rows, int64_t size) const {
        if (count == 1) return rows;
        T* gathered = sized(space.gathered, pairs * size);
        for (int64_t pair = 0; pair < pairs; pair++)
            std::memcpy(gathered + space.places[size_t(pair)] * size, rows + pair / mixture.chosen * size,
                        sizeof(T) * size_t(size));
        return gathered;
    }

    // Rows by expert times the layers of their experts.
    T* multiply(const LinearLayer* layers, const T* rows, std::vector<T>& buffer, bool has_same_rows) const {
        space.products.clear();
        for (int64_t expert = 0; expert < mixture.experts; expert++) {
            const LinearLayer& layer = layers[expert];
            if (const int64_t rows_of_it = space.counts[size_t(expert)])
                space.products.push_back({layer.parts, layer.part_count, layer.bias, rows_of_it});
        }
        T* out = sized(buffer, pairs * layers[0].outputs);
        Kernels<T>::packed_products()(rows, space.products.data(), int64_t(space.products.size()), out, layers[0].inputs,
                                      layers[0].outputs, has_same_rows, threads);
        return out;
    }

    // The weighted sum of what the experts of a row made of it, in the order of its choices.
    void add_up(const T* outputs, int64_t row, int64_t size, T* out) const {
        const float* weights = space.weights.data() + row * mixture.chosen;
        const int64_t* places = space.places.data() + row * mixture.chosen;
        constexpr int64_t TOGETHER = 64;
        for (int64_t first = 0; first < size; first += TOGETHER) {
            const int64_t width = std::min(TOGETHER, size - first);
            float sums[TOGETHER];
            for (int64_t choice = 0; choice < mixture.chosen; choice++) {
                const T* from = outputs + places[choice] * size + first;
                const float weight = weights[choice];
                if (choice == 0)
                    for (int64_t i = 0; i < width; i++) sums[i] = to_float(from[i]) * weight;
                else
                    for (int64_t i = 0; i < width; i++) {
                        const float part = to_float(from[i]) * weight;
                        sums[i] += part;
                    }
            }
            for (int64_t i = 0; i < width; i++) out[first + i] = from_float<T>(sums[i]);
        }
    }
};

template <class T>
void mixture_of_experts(const T* rows, const Mixture* mixture, T* out, int64_t count, int64_t threads) {
    thread_local Workspace<T> space;
    MixturePass<T>(*mixture, count, threads, space).run(rows, out);
}

}  // namespace

extern "C" {
EXPORT(mixture_of_experts)

// The sizes of a linear layer and a mixture, which Python compares with its own.
int64_t mixture_bytes(int64_t index) {
    const int64_t sizes[] = {sizeof(LinearLayer), sizeof(Mixture)};
    return sizes[index];
}
}
