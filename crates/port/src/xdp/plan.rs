//! Translates a recipe into the BPF program's settings.

use bpf::{FieldDraw, SendPlan};
use wire::{AddressDraws, Draw, Recipe};

pub(super) fn of(recipe: &Recipe) -> SendPlan {
    let (ipv6, src_addr, dst_addr) = match &recipe.addresses {
        AddressDraws::V4 { src, dst } => (false, draw(src), draw(dst)),
        AddressDraws::V6 { src, dst } => (true, draw(src), draw(dst)),
    };
    SendPlan {
        base: recipe.base.clone(),
        ipv6,
        payload_at: recipe.payload_at,
        fields: [
            src_addr,
            dst_addr,
            draw(&recipe.src_port),
            draw(&recipe.dst_port),
            draw(&recipe.payload_len),
        ],
        ipv4_sum: (recipe.ip_varies && !ipv6).then(|| recipe.ipv4_sum.fold()),
        udp_sum: recipe.udp_sum.fold(),
    }
}

fn draw<V: Copy + Into<u128>>(draw: &Draw<V>) -> FieldDraw {
    match draw {
        Draw::Fixed(_) => FieldDraw::Fixed,
        Draw::Increment { first, step, cycle } => {
            FieldDraw::Increment { first: (*first).into(), step: *step, count: cycle.count() }
        }
        Draw::Random { first, count, seed } => {
            FieldDraw::Random { first: (*first).into(), count: *count, seed: *seed }
        }
        Draw::List { values, .. } => FieldDraw::List(values.iter().map(|value| (*value).into()).collect()),
    }
}
