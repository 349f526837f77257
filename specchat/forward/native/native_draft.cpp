// A dynamic draft tree of a head over pairs (EAGLE-2, arXiv 2406.16858), all of its levels in one call.
//
// Each level computes the best nodes of the level before that are in the tree so far, as drafters/eagle/dynamic_tree.py
// does with operations of torch; with a small head these take longer than the numbers. The functions know addresses and counts;
// native_tree.py has checked them.

#include <algorithm>
#include <vector>

#include "native_stack.h"

namespace {

// The structures have fields of 8 bytes only, so that Python describes them without gaps.

struct Head {
    const Stack* stack;
    const void *feature_norm, *embedding_norm;  // null: there is none
    const void* embeddings;                     // [rows, hidden size]
    int64_t embeds_columns;                     // their rows are those of the logits' columns, and not of tokens
    LinearLayer fusion;                         // of the states of several layers; 0 outputs: there is none
    LinearLayer pair_projection;                // 0 outputs: there is none, and the pair is the input of the attention
    LinearLayer lm_head;
    const int64_t* tokens;  // of the columns; null: the columns are tokens
    int64_t layer_count, feedback_layer, is_feature_first, residual_is_normed, context_window;
    int64_t depth, width;
    double min_level_probability, min_log_probability;
};

// The last pairs of a text, which the head has not computed yet, and where their rows belong.
struct TextEnd {
    const void *states, *embeddings;  // [pairs, hidden size]; states before the fusion [pairs, its inputs]
    const Rules* rules;
    const uint32_t* keys;             // of the noise at each depth [depth, 2]
    int64_t pairs, max_draft_tokens;
    int64_t first_position, committed;  // position of row 0 of the cache, and its rows before the pairs
    const void *cos, *sin;              // of all positions [positions, rotary]
    int64_t rotary;
    void *const *keys_of_layers, *const *values_of_layers;
    const int64_t* strides;
    int64_t is_int8, threads;
    // Changes logits [count, columns] after draft tokens [count, depth] in place; null without penalties.
    void (*penalize)(void* logits, const int64_t* paths, int64_t count, int64_t depth);
};

// Nodes of a tree, in the order in which they were found.
struct Nodes {
    int64_t *tokens, *parents;  // -1: the parent is the last token of the text
    double* log_probabilities;  // of the whole path
    int64_t capacity, count;
};

constexpr int64_t SHORTLIST = 16;  // best tokens of a node that get a probability

template <class T>
struct Workspace {
    std::vector<T> hidden, fused, features, embedded, normed, pairs, projected, padded, out, selected, logits, cos, sin;
    std::vector<int64_t> best, paths;
    std::vector<float> scores;
    std::vector<uint8_t> allowed;
    std::vector<uint32_t> keys;
};

template <class T>
class TreeBuilder {
   public:
    TreeBuilder(const Head& head, const TextEnd& end, Nodes& nodes, Workspace<T>& space)
        : head(head), end(end), nodes(nodes), space(space), size(head.stack->hidden_size) {}

    void build() {
        nodes.count = 0;
        expanded = {-1};
        add_level(compute_pairs(), 0);
        const int64_t depth = std::min(head.depth, end.max_draft_tokens);
        for (int64_t level = 1; level < depth && expand(); level++) add_level(compute_level(level), level);
    }

   private:
    const Head& head;
    const TextEnd& end;
    Nodes& nodes;
    Workspace<T>& space;
    const int64_t size;
    int64_t level_start = 0;            // the first node of the last level
    std::vector<int64_t> expanded;      // the nodes that the last pass computed; -1: the last token of the text
    std::vector<int64_t> columns;       // of the logits, of each node
    std::vector<std::vector<int64_t>> ancestors;  // of each row behind the committed ones: the rows that it sees

    // Adds the children of the expanded nodes. logits [expanded, columns]
    void add_level(T* logits, int64_t depth) {
        const int64_t count = int64_t(expanded.size()), stride = head.lm_head.outputs;
        if (end.penalize) end.penalize(logits, expanded_paths(depth), count, depth);
        int64_t* best = sized(space.best, count * SHORTLIST);
        float* scores = sized(space.scores, count * SHORTLIST);
        uint32_t* keys = sized(space.keys, 2 * count);
        for (int64_t row = 0; row < count; row++) std::memcpy(keys + 2 * row, end.keys + 2 * depth, 8);
        const int64_t ranks = std::min(SHORTLIST, stride);
        Kernels<T>::rank_rows()(logits, end.rules, keys, head.tokens, best, scores, ranks, count, stride, end.threads);
        level_start = nodes.count;
        for (int64_t row = 0; row < count; row++)
            add_children(expanded[size_t(row)], best + row * ranks, scores + row * ranks, ranks);
    }

    // The draft tokens from the root to each expanded node. [expanded, depth]
    const int64_t* expanded_paths(int64_t depth) {
        int64_t* paths = sized(space.paths, int64_t(expanded.size()) * depth);
        for (size_t row = 0; row < expanded.size(); row++) {
            int64_t node = expanded[row];
            for (int64_t place = depth - 1; place >= 0; place--, node = nodes.parents[node])
                paths[int64_t(row) * depth + place] = nodes.tokens[node];
        }
        return paths;
    }

    void add_children(int64_t parent, const int64_t* best, const float* scores, int64_t ranks) {
        double total = 0;
        for (int64_t rank = 0; rank < ranks; rank++) total += std::exp(double(scores[rank]) - scores[0]);
        const double above = parent < 0 ? 0 : nodes.log_probabilities[parent];
        for (int64_t rank = 0; rank < std::min(head.width, ranks) && nodes.count < nodes.capacity; rank++) {
            const int64_t node = nodes.count++;
            nodes.tokens[node] = head.tokens ? head.tokens[best[rank]] : best[rank];
            nodes.parents[node] = parent;
            nodes.log_probabilities[node] = above + std::min(scores[rank] - scores[0] - std::log(total), 0.0);
            columns.push_back(best[rank]);
        }
    }

    bool is_better(int64_t one, int64_t other) const {
        const double first = nodes.log_probabilities[one], second = nodes.log_probabilities[other];
        return first > second || (first == second && one < other);
    }

    // The best nodes of all levels, as many as the tree may have.
    std::vector<int64_t> best_nodes() const {
        std::vector<int64_t> best;
        for (int64_t node = 0; node < nodes.count; node++)
            if (nodes.log_probabilities[node] > head.min_log_probability) best.push_back(node);
        std::sort(best.begin(), best.end(), [&](int64_t one, int64_t other) { return is_better(one, other); });
        if (int64_t(best.size()) > end.max_draft_tokens) best.resize(size_t(end.max_draft_tokens));
        return best;
    }

    // Chooses the nodes of the last level that the next pass computes; false where they are too improbable. Their
    // states become those of their parents.
    bool expand() {
        std::vector<int64_t> chosen;
        for (const int64_t node : best_nodes())
            if (node >= level_start && int64_t(chosen.size()) < head.width) chosen.push_back(node);
        double probability = 0;
        for (const int64_t node : chosen) probability += std::exp(nodes.log_probabilities[node]);
        if (chosen.empty() || probability < head.min_level_probability) return false;
        std::vector<T> states;
        const int64_t first = int64_t(ancestors.size() - (ancestors.empty() ? 0 : expanded.size()));
        std::vector<std::vector<int64_t>> rows;
        for (const int64_t node : chosen) {
            const auto place = std::find(expanded.begin(), expanded.end(), nodes.parents[node]) - expanded.begin();
            const T* state = space.hidden.data() + place * size;
            states.insert(states.end(), state, state + size);
            rows.push_back(ancestors.empty() ? std::vector<int64_t>() : ancestors[size_t(first + place)]);
            rows.back().push_back(int64_t(ancestors.size() + rows.size()) - 1);
        }
        ancestors.insert(ancestors.end(), rows.begin(), rows.end());
        space.hidden = states;
        expanded = chosen;
        return true;
    }

    int64_t committed() const { return end.committed + end.pairs; }  // rows before those of the tree

    // The logits after the last pair of the text, whose state becomes the output of the head. [1, columns]
    T* compute_pairs() {
        const int64_t kv_length = committed();
        space.allowed.assign(size_t(end.pairs * kv_length), 0);
        for (int64_t row = 0; row < end.pairs; row++) {
            const int64_t last = end.committed + row;  // that it sees
            for (int64_t i = first_seen(end.first_position + last); i <= last; i++)
                space.allowed[size_t(row * kv_length + i)] = 1;
        }
        const int64_t position = end.first_position + end.committed;
        const T *cos = angles(end.cos, position, 1, end.pairs, space.cos);
        const T *sin = angles(end.sin, position, 1, end.pairs, space.sin);
        const T* states = static_cast<const T*>(end.states);
        if (head.fusion.outputs)
            states = multiply(head.fusion, states, end.pairs, end.threads, space.padded, space.fused);
        const T* out = compute(states, normed(static_cast<const T*>(end.embeddings), end.pairs), end.pairs, cos, sin);
        const T* last = space.selected.data() + (end.pairs - 1) * size;
        space.hidden.assign(last, last + size);
        return multiply(head.lm_head, out + (end.pairs - 1) * size, 1, end.threads, space.padded, space.logits);
    }

    // The same after the expanded nodes. [expanded, columns]
    T* compute_level(int64_t level) {
        const int64_t count = int64_t(expanded.size()), kv_length = committed() + int64_t(ancestors.size());
        const int64_t position = end.first_position + committed() + level - 1, first = first_seen(position);
        space.allowed.assign(size_t(count * kv_length), 0);
        for (int64_t row = 0; row < count; row++) {
            uint8_t* sees = space.allowed.data() + row * kv_length;
            for (int64_t i = first; i < committed(); i++) sees[i] = 1;
            for (const int64_t ancestor : ancestors[ancestors.size() - size_t(count - row)])
                if (committed() + ancestor >= first) sees[committed() + ancestor] = 1;
        }
        const T *cos = angles(end.cos, position, 0, count, space.cos), *sin = angles(end.sin, position, 0, count, space.sin);
        const T* out = compute(space.hidden.data(), embed(count), count, cos, sin);
        space.hidden.assign(space.selected.data(), space.selected.data() + count * size);
        return multiply(head.lm_head, out, count, end.threads, space.padded, space.logits);
    }

    // The output of the layers for pairs, after the final norm; `space.selected` has what the next passes read.
    const T* compute(const T* states, const T* embedded, int64_t count, const T* cos, const T* sin) {
        const T* features = head.feature_norm ? norm(states, head.feature_norm, count, space.features) : states;
        const T* pairs = head.is_feature_first ? join(features, embedded, count) : join(embedded, features, count);
        const T* rows = head.residual_is_normed ? features : states;
        if (head.pair_projection.outputs) {
            rows = multiply(head.pair_projection, pairs, count, end.threads, space.padded, space.projected);
            pairs = nullptr;
        }
        T *out = sized(space.out, count * size), *selected = sized(space.selected, count * size);
        const int64_t kv_length = int64_t(space.allowed.size()) / count;
        const void *first_cos = cos, *first_sin = sin;
        const uint8_t* allowed = space.allowed.data();
        const Segment segment{&allowed, end.keys_of_layers, end.values_of_layers, end.strides, count,
                              kv_length, kv_length - count, end.is_int8};
        const Pass pass{rows, pairs, out, selected, &head.feedback_layer, 1, count, head.layer_count, &end.rotary,
                        &first_cos, &first_sin, &segment, 1, end.threads};
        run_stack(&pass);
        return out;
    }

    // The first row that a row at this position sees: the head attends to no more pairs than it was trained for.
    int64_t first_seen(int64_t position) const {
        return std::max(position - head.context_window + 1 - end.first_position, int64_t(0));
    }

    void run_stack(const Pass* pass) const {
        if constexpr (std::is_same_v<T, float>)
            decoder_stack_float32(head.stack, pass);
        else
            decoder_stack_bfloat16(head.stack, pass);
    }

    const T* norm(const T* rows, const void* weight, int64_t count, std::vector<T>& buffer) const {
        T* out = sized(buffer, count * size);
        Kernels<T>::rms_norm()(rows, static_cast<const T*>(weight), out, count, size, float(head.stack->epsilon),
                               float(head.stack->norm_offset));
        return out;
    }

    // The normalized embeddings of the expanded nodes.
    const T* embed(int64_t count) {
        T* embedded = sized(space.embedded, count * size);
        for (int64_t row = 0; row < count; row++) {
            const size_t node = size_t(expanded[size_t(row)]);
            const int64_t place = head.embeds_columns ? columns[node] : nodes.tokens[node];
            std::memcpy(embedded + row * size, static_cast<const T*>(head.embeddings) + place * size, sizeof(T) * size);
        }
        return normed(embedded, count);
    }

    const T* normed(const T* embedded, int64_t count) {
        return head.embedding_norm ? norm(embedded, head.embedding_norm, count, space.normed) : embedded;
    }

    const T* join(const T* first, const T* second, int64_t count) {
        T* pairs = sized(space.pairs, 2 * count * size);
        for (int64_t row = 0; row < count; row++) {
            std::memcpy(pairs + 2 * row * size, first + row * size, sizeof(T) * size);
            std::memcpy(pairs + (2 * row + 1) * size, second + row * size, sizeof(T) * size);
        }
        return pairs;
    }

    // The angles of rows whose positions are `step` apart, from one on.
    const T* angles(const void* table, int64_t position, int64_t step, int64_t count, std::vector<T>& buffer) const {
        T* to = sized(buffer, count * end.rotary);
        for (int64_t row = 0; row < count; row++)
            std::memcpy(to + row * end.rotary, static_cast<const T*>(table) + (position + row * step) * end.rotary,
                        sizeof(T) * end.rotary);
        return to;
    }
};

// Computes the last pairs of a text, and the tree after it: the children of all nodes that the head computes.
template <class T>
void draft_tree(const Head* head, const TextEnd* end, Nodes* nodes) {
    thread_local Workspace<T> space;
    TreeBuilder<T>(*head, *end, *nodes, space).build();
}

}  // namespace

extern "C" {
EXPORT(draft_tree)

// The sizes of a head, an end of a text, and nodes, which Python compares with its own.
int64_t draft_bytes(int64_t index) {
    const int64_t sizes[] = {sizeof(Head), sizeof(TextEnd), sizeof(Nodes)};
    return sizes[index];
}
}
