// sync.hpp: barriers, shuffles, votes, and what happens when somebody never comes.

#pragma once

#include "state.hpp"

namespace {
// The caller of a function marked "locked" holds the block's lock.

// locked. All who can come have come: exited threads count as arrived, as on the device.
void complete_barrier(Block& b) {
    b.asleep -= b.arrived;
    b.arrived = 0;
    b.generation.advance();
}

// locked.
void complete_group(Block& b, Warp& w, Group& g) {
    uint64_t votes = 0;
    for (int lane = 0; lane < 32; ++lane)
        if (g.arrived >> lane & 1) votes |= uint64_t(w.lanes[lane]->value & 1) << lane;
    for (int lane = 0; lane < 32; ++lane) {
        if (!(g.arrived >> lane & 1)) continue;
        Thread* t = w.lanes[lane];
        // The value of a lane that takes no part is undefined: NaN.
        const bool there = t->source >= 0 && t->source < 32 && (g.arrived >> t->source & 1);
        t->result = g.kind == VOTE ? votes : there ? w.lanes[t->source]->value : ~uint64_t(0);
    }
    b.asleep -= __builtin_popcount(g.arrived);
    g.arrived = 0;
    g.generation.advance();
}

// locked. Nobody is left to wake the sleepers: say who waits where.
void check_deadlock(Block& b) {
    if (b.asleep == 0 || b.asleep < b.live) return;
    std::string text;
    if (b.arrived)
        text = std::to_string(b.arrived) + " wait at the barrier of line " + std::to_string(b.line);
    for (size_t i = 0; i < b.warps.size(); ++i)
        for (const Group& g : b.warps[i].groups)
            if (g.arrived && text.size() < 300) {
                char part[160];
                snprintf(part, sizeof part, "lanes 0x%08x of warp %zu wait at the warp collective of line %d for lanes 0x%08x",
                         g.arrived, i, g.line, g.mask & b.warps[i].live & ~g.arrived);
                text += (text.empty() ? "" : "; ") + std::string(part);
            }
    fail("deadlock", "block (%u, %u, %u): %s; nobody is left to come", b.index.x, b.index.y, b.index.z, text.c_str());
}

void leave(Thread* t) {
    Block& b = *t->block;
    Warp& w = b.warps[t->linear / 32];
    b.lock.lock();
    --b.live;
    w.live &= ~(1u << t->linear % 32);
    if (b.arrived && b.arrived == b.live) complete_barrier(b);
    for (Group& g : w.groups)
        if (g.arrived && g.arrived == (g.mask & w.live)) complete_group(b, w, g);
    check_deadlock(b);
    b.lock.unlock();
}
}  // namespace

// ---- what kernels call (cuda_builtins.h)

void mage_barrier(int site, int line) {
    if (site >= 0 && site < MAX_BARRIERS) __atomic_store_n(&barrier_lines[site], line, __ATOMIC_RELAXED);
    if (site == dropped_barrier) return;
    Block& b = *self->block;
    const int generation = b.generation.begin(true);
    b.lock.lock();
    if (b.arrived && b.site != site)
        fail("deadlock", "%s is at the barrier of line %d while %s waits at the barrier of line %d", Where(self).text, line,
             Where(b.first).text, b.line);
    if (!b.arrived) b.site = site, b.line = line, b.first = self;
    ++b.arrived, ++b.asleep;
    if (b.arrived == b.live) complete_barrier(b);
    else check_deadlock(b);
    b.lock.unlock();
    b.generation.sleep(generation);
    b.generation.end(generation, true);
}

uint64_t mage_collective(int kind, unsigned mask, uint64_t value, int source, int line) {
    Block& b = *self->block;
    Warp& w = b.warps[self->linear / 32];
    const unsigned bit = 1u << self->linear % 32;
    if (!(mask & bit)) fail("deadlock", "%s calls the warp collective of line %d with mask 0x%08x, which leaves it out",
                            Where(self).text, line, mask);
    self->value = value;
    self->source = source;
    b.lock.lock();
    Group& g = w.find(mask);
    const int generation = g.generation.begin(kind == SYNC);
    if (g.arrived && (g.kind != kind || g.line != line))
        fail("deadlock", "%s is at the warp collective of line %d while lanes 0x%08x of its warp wait for it at that of line %d",
             Where(self).text, line, g.arrived, g.line);
    g.mask = mask, g.kind = kind, g.line = line;
    g.arrived |= bit, ++b.asleep;
    if (g.arrived == (mask & w.live)) complete_group(b, w, g);
    else check_deadlock(b);
    b.lock.unlock();
    g.generation.sleep(generation);
    g.generation.end(generation, kind == SYNC);
    return self->result;
}

int mage_lane() { return self->linear % 32; }
unsigned mage_active_lanes() { return __atomic_load_n(&self->block->warps[self->linear / 32].live, __ATOMIC_RELAXED); }
