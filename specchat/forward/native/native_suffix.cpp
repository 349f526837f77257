// Suffix decoding (arXiv 2411.04975) in one call: what followed the longest contexts of a text, most probable first.
//
// drafters/suffix_decoding.py computes the same in Python, and explains the rules. Comparing all positions of a text
// with its end takes less time than an index of them: a long text is some ten thousand numbers, one after the other.
// The functions know addresses and counts; native_suffix.py has checked them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <queue>
#include <vector>

namespace {

constexpr int64_t BLOCK = 16;  // tokens that are compared with one at once

// The structures have fields of 8 bytes only, so that Python describes them without gaps.

struct Text {
    const int32_t* tokens;
    int64_t count;
};

struct Search {
    Text text;                 // its end is the context
    Text past;                 // other texts, each with `text_end` behind it
    const int64_t* positions;  // in `past`, sorted by their reversed contexts
    int64_t position_count;
    int64_t max_context, max_matches, max_neighbours, min_past_match, text_end, max_draft_tokens;
    double weight_per_token, min_probability;
    int32_t *tokens, *parents, *is_own;  // of the draft: [max_draft_tokens]
    int64_t count;
};

struct Match {
    Text text;
    int64_t next, matched;  // the place of the token that followed, and the length of the context before it
    bool is_own;
    double weight;
};

class Matches {
   public:
    explicit Matches(const Search& search) : search(search) {}

    // Of both, the longest contexts first; of equals those of the own text, then the latest.
    std::vector<Match> find() {
        std::vector<Match> found = own();
        for (const Match& match : past())
            if (match.matched >= search.min_past_match) found.push_back(match);
        std::stable_sort(found.begin(), found.end(), longer);
        return found;
    }

   private:
    const Search& search;

    static bool longer(const Match& one, const Match& other) { return one.matched > other.matched; }

    static bool longer_or_later(const Match& one, const Match& other) {
        return one.matched > other.matched || (one.matched == other.matched && one.next > other.next);
    }

    Match match(const Text& text, int64_t next, bool is_own) const {
        const int64_t limit = std::min({search.max_context, search.text.count, next});
        const int32_t *at = text.tokens + next - 1, *end = search.text.tokens + search.text.count - 1;
        int64_t matched = 0;
        while (matched < limit && at[-matched] == end[-matched]) matched++;
        return {text, next, matched, is_own, std::pow(search.weight_per_token, double(matched))};
    }

    // From the latest position to the first one, in blocks that are searched for the last token at once.
    std::vector<Match> own() const {
        std::vector<Match> best;
        const int32_t* tokens = search.text.tokens;
        const int32_t last = search.text.count ? tokens[search.text.count - 1] : 0;
        for (int64_t end = search.text.count - 1; end > 0; end -= BLOCK) {
            const int64_t start = std::max<int64_t>(end - BLOCK, 0);
            int32_t found = 0;
#pragma omp simd reduction(| : found)
            for (int64_t i = start; i < end; i++) found |= tokens[i] == last;
            for (int64_t i = end - 1; found && i >= start; i--) {
                if (tokens[i] != last) continue;
                add(best, match(search.text, i + 1, true));
                if (int64_t(best.size()) == search.max_matches && best.back().matched == search.max_context) return best;
            }
        }
        return best;
    }

    // Positions come from the latest to the first, so that of equal contexts those that are there already stay before.
    void add(std::vector<Match>& best, const Match& match) const {
        const bool is_full = int64_t(best.size()) == search.max_matches;
        if (is_full && best.back().matched >= match.matched) return;
        if (is_full) best.pop_back();
        best.insert(std::upper_bound(best.begin(), best.end(), match, longer), match);
    }

    // The neighbours of the place where the context would be, the longest contexts first.
    std::vector<Match> past() const {
        const int64_t* middle =
            std::lower_bound(search.positions, search.positions + search.position_count, 0,
                             [this](int64_t position, int) { return is_before_context(position); });
        const int64_t *after = middle, *before = middle - 1, *last = search.positions + search.position_count;
        std::vector<Match> found;
        while (int64_t(found.size()) < search.max_neighbours) {
            const Match next = after < last ? match(search.past, *after, false) : Match{};
            const Match previous = before >= search.positions ? match(search.past, *before, false) : Match{};
            const bool is_after = next.matched >= previous.matched;
            if (!(is_after ? next : previous).matched) break;
            found.push_back(is_after ? next : previous);
            (is_after ? after : before) += is_after ? 1 : -1;
        }
        std::stable_sort(found.begin(), found.end(), longer_or_later);
        if (int64_t(found.size()) > search.max_matches) found.resize(size_t(search.max_matches));
        return found;
    }

    // Whether the reversed context of a position is smaller than that of the end of the text, token by token.
    bool is_before_context(int64_t position) const {
        const int64_t own = std::min(search.max_context, position);
        const int64_t other = std::min(search.max_context, search.text.count);
        for (int64_t i = 0; i < std::min(own, other); i++) {
            const int32_t one = search.past.tokens[position - 1 - i];
            const int32_t two = search.text.tokens[search.text.count - 1 - i];
            if (one != two) return one < two;
        }
        return own < other;
    }
};

// A draft token whose parent is in the draft.
struct Choice {
    double probability;
    int64_t order;  // of equal probabilities the one that was found earlier is better
    int32_t parent, token;
    std::vector<const Match*> matches;

    bool operator<(const Choice& other) const {
        return probability < other.probability || (probability == other.probability && order > other.order);
    }
};

class Draft {
   public:
    explicit Draft(Search& search) : search(search) {}

    void build(const std::vector<Match>& found) {
        std::vector<const Match*> matches;
        for (const Match& each : found) matches.push_back(&each);
        push_children(0, 0, 1.0, matches);
        search.count = 0;
        while (!queue.empty() && search.count < search.max_draft_tokens) {
            const Choice best = queue.top();
            queue.pop();
            const int64_t node = search.count++;
            search.tokens[node] = best.token;
            search.parents[node] = best.parent;
            search.is_own[node] =
                std::any_of(best.matches.begin(), best.matches.end(), [](const Match* each) { return each->is_own; });
            depths.push_back(best.parent ? depths[size_t(best.parent - 1)] + 1 : 1);
            push_children(int32_t(node + 1), depths.back(), best.probability, best.matches);
        }
    }

   private:
    Search& search;
    std::priority_queue<Choice> queue;
    std::vector<int64_t> depths;  // of the nodes behind the root
    int64_t order = 0;

    void push_children(int32_t node, int64_t depth, double probability, const std::vector<const Match*>& matches) {
        std::vector<Choice> choices;
        double total = 0;
        for (const Match* each : matches) {
            const int64_t period = each->text.count - each->next;  // past the end of the text, what follows repeats
            const int32_t token = each->text.tokens[each->next + depth % period];
            if (token == search.text_end) continue;
            auto same = std::find_if(choices.begin(), choices.end(), [&](const Choice& c) { return c.token == token; });
            if (same == choices.end()) same = choices.insert(choices.end(), Choice{0, 0, node, token, {}});
            same->matches.push_back(each);
            total += each->weight;
        }
        for (Choice& choice : choices) {
            const double matched = double(depth + choice.matches[0]->matched);  // the longest match comes first
            double share = 0;
            for (const Match* each : choice.matches) share += each->weight;
            share = choices.size() == 1 ? 1.0 : share / total;
            choice.probability = probability * share * matched / (matched + 1);
            if (choice.probability < search.min_probability) continue;
            choice.order = order++;
            queue.push(std::move(choice));
        }
    }
};

void draft(Search* search) { Draft(*search).build(Matches(*search).find()); }

}  // namespace

extern "C" {
decltype(&draft) suffix_draft = draft;

// The size of a search, which Python compares with its own.
int64_t suffix_bytes(int64_t) { return sizeof(Search); }
}
