//! The blocks of a cache that all sequences share: which are free, and which tokens the others hold.
//!
//! Blocks form a tree: a block continues the one before it, so the way from a root to a block is the beginning of a
//! text. A sequence uses all blocks on one way. Full blocks are never written again, so sequences with the same
//! beginning share them. Blocks that nobody uses stay until their memory is needed; then those go first that were unused
//! for the longest time and that no other block continues.

/// All blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Tokens in a block.
    size: usize,
    nodes: Vec<Node>,
    /// Blocks at the beginning of a text.
    roots: Vec<u32>,
    free: Vec<u32>,
    /// Blocks that hold tokens and that nobody uses.
    idle: usize,
    /// Counts releases, to find the block that was unused for the longest time.
    clock: u64,
    /// Whether blocks that nobody uses stay.
    keeps: bool,
}

/// A block.
#[derive(Debug, Default)]
struct Node {
    /// The tokens whose keys and values it holds.
    tokens: Vec<u32>,
    parent: Option<u32>,
    children: Vec<u32>,
    /// How many sequences use it.
    users: usize,
    used: u64,
    is_free: bool,
}

/// The longest beginning of a text in the cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Full blocks, which can be shared.
    pub full: Vec<u32>,
    /// A block that begins as the text goes on, and how many tokens are the same. They can be copied.
    pub part: Option<(u32, usize)>,
}

impl Blocks {
    pub fn new(count: usize, size: usize, keeps: bool) -> Blocks {
        let node = |_| Node { is_free: true, ..Node::default() };
        let free = (0..count as u32).rev().collect();
        Blocks { size, nodes: (0..count).map(node).collect(), roots: Vec::new(), free, idle: 0, clock: 0, keeps }
    }

    /// Tokens in a block.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Blocks that nobody uses.
    pub fn available(&self) -> usize {
        self.free.len() + self.idle
    }

    /// How many of some blocks nobody uses.
    pub fn unused(&self, blocks: &[u32]) -> usize {
        blocks.iter().filter(|&&block| self.nodes[block as usize].users == 0).count()
    }

    /// The longest beginning of a text in the cache.
    pub fn find(&self, tokens: &[u32]) -> Found {
        let (mut found, mut children) = (Found::default(), &self.roots);
        loop {
            let rest = &tokens[found.full.len() * self.size..];
            let same = |block: u32| {
                let held = &self.nodes[block as usize].tokens;
                held.iter().zip(rest).take_while(|(held, token)| held == token).count()
            };
            let best = children.iter().map(|&block| (same(block), block)).max_by_key(|&(count, _)| count);
            match best {
                Some((count, block)) if count == self.size => {
                    found.full.push(block);
                    children = &self.nodes[block as usize].children;
                }
                Some((count, block)) if count > 0 => {
                    found.part = Some((block, count));
                    return found;
                }
                _ => return found,
            }
        }
    }

    /// One more sequence uses a block.
    pub fn take(&mut self, block: u32) {
        let node = &mut self.nodes[block as usize];
        self.idle -= usize::from(node.users == 0);
        node.users += 1;
    }

    /// An empty block that continues another one and has one user. `None` if all blocks are used.
    pub fn grow(&mut self, parent: Option<u32>) -> Option<u32> {
        if self.free.is_empty() {
            self.evict();
        }
        let block = self.free.pop()?;
        self.nodes[block as usize] = Node { parent, users: 1, ..Node::default() };
        self.siblings(parent).push(block);
        Some(block)
    }

    /// Records that a block holds more tokens.
    pub fn fill(&mut self, block: u32, tokens: &[u32]) {
        self.nodes[block as usize].tokens.extend(tokens);
    }

    /// One sequence less uses these blocks, each of which continues the one before it.
    pub fn release(&mut self, blocks: &[u32]) {
        self.clock += 1;
        for &block in blocks.iter().rev() {
            let (clock, keeps) = (self.clock, self.keeps);
            let node = &mut self.nodes[block as usize];
            node.users -= 1;
            if node.users > 0 {
                continue;
            }
            node.used = clock;
            if keeps && !node.tokens.is_empty() {
                self.idle += 1;
            } else {
                self.free(block);
            }
        }
    }

    /// Frees the block that was unused for the longest time, of those that no other one continues.
    fn evict(&mut self) {
        let is_last = |node: &Node| !node.is_free && node.users == 0 && node.children.is_empty();
        let oldest = self.nodes.iter().enumerate().filter(|(_, node)| is_last(node)).min_by_key(|(_, node)| node.used);
        if let Some((block, _)) = oldest {
            self.idle -= 1;
            self.free(block as u32);
        }
    }

    fn free(&mut self, block: u32) {
        let parent = self.nodes[block as usize].parent;
        self.siblings(parent).retain(|&other| other != block);
        self.nodes[block as usize] = Node { is_free: true, ..Node::default() };
        self.free.push(block);
    }

    /// The blocks that continue a block, or that begin a text.
    fn siblings(&mut self, parent: Option<u32>) -> &mut Vec<u32> {
        match parent {
            Some(parent) => &mut self.nodes[parent as usize].children,
            None => &mut self.roots,
        }
    }
}

#[cfg(test)]
mod tests;
