//! The emulator finds the faults that it is there for.

use konkordia_gpu::emulator::{Argument, Grid, Order, launch};

const ONE: Grid = Grid { x: 1, y: 1 };
const ORDERS: [Order; 4] = [Order::Up, Order::Down, Order::Mixed(3), Order::Mixed(77)];

fn run(kernel: &str, grid: Grid, order: Order, length: usize, number: Option<u32>) -> Result<Vec<u32>, String> {
    let mut out = vec![0u32; length];
    let arguments: Vec<_> = std::iter::once(Argument::write(&mut out)).chain(number.map(Argument::number)).collect();
    launch(kernel, grid, order, &arguments)?;
    drop(arguments);
    Ok(out)
}

#[track_caller]
fn refused(result: Result<Vec<u32>, String>, why: &str) {
    match result {
        Err(text) => assert!(text.contains(why), "'{text}' says nothing of '{why}'"),
        Ok(_) => panic!("nothing was found of '{why}'"),
    }
}

#[test]
fn an_access_outside_of_an_array_ends_the_launch() {
    for order in ORDERS {
        assert_eq!(run("fault_outside", ONE, order, 256, Some(0)), Ok(vec![1; 256]));
        refused(run("fault_outside", ONE, order, 256, Some(1)), "outside of an array, at element 256");
    }
}

#[test]
fn a_thread_that_does_not_reach_a_barrier_ends_the_launch() {
    for order in ORDERS {
        for all_or_none in [0, 256] {
            assert_eq!(run("fault_barrier", ONE, order, 256, Some(all_or_none)), Ok(vec![1; 256]));
        }
        for arriving in [1, 255] {
            refused(run("fault_barrier", ONE, order, 256, Some(arriving)), "does not arrive at the barrier");
        }
    }
}

#[test]
fn a_missing_barrier_ends_the_launch_in_any_order() {
    let neighbours: Vec<u32> = (0..256).map(|thread| (thread + 1) % 256).collect();
    for order in ORDERS {
        assert_eq!(run("fault_race", ONE, order, 256, Some(1)), Ok(neighbours.clone()));
        refused(run("fault_race", ONE, order, 256, Some(0)), "without a barrier between them");
    }
}

#[test]
fn two_blocks_that_write_one_element_end_the_launch() {
    for order in ORDERS {
        assert_eq!(run("fault_blocks", ONE, order, 256, None), Ok(vec![0; 256]));
        refused(run("fault_blocks", Grid { x: 2, y: 1 }, order, 256, None), "two threads write one element");
    }
}

#[test]
fn other_arguments_and_names_are_refused_and_the_next_launch_is_whole() {
    refused(run("no_kernel", ONE, Order::Up, 256, None), "no kernel of this name");
    refused(run("fault_outside", ONE, Order::Up, 256, None), "takes 2 arguments");
    let (read, mut bytes) = ([0u32; 256], [0u8; 256]);
    for arguments in [
        [Argument::read(&read), Argument::number(0u32)],
        [Argument::write(&mut bytes), Argument::number(0u32)],
        [Argument::write(&mut [0u32; 256]), Argument::number(0u16)],
    ] {
        let why = launch("fault_outside", ONE, Order::Up, &arguments).expect_err("arguments of other types");
        assert!(why.contains("of other types"), "{why}");
    }
    let why = launch("fault_blocks", Grid { x: 0, y: 1 }, Order::Up, &[]).expect_err("a grid without blocks");
    assert!(why.contains("at least 1"), "{why}");
    assert_eq!(run("fault_race", ONE, Order::Up, 256, Some(1)).map(|out| out[255]), Ok(0));
}

/// The second target must give the bits of the checked one; what a kernel takes from memory that it did not write, it
/// does not.
#[test]
fn another_result_of_the_second_target_ends_the_launch() {
    for threads in [1, 2, 5] {
        let grid = Grid { x: 9, y: 1 };
        assert_eq!(
            run("fault_outside", ONE, Order::Parallel(threads), 256, Some(0)),
            Err("fault_outside: the second target has no kernel of this name".into())
        );
        refused(run("fault_old_memory", grid, Order::Parallel(threads), 9 * 256, None), "differs between the checked target");
        refused(run("fault_blocks", grid, Order::Parallel(threads), 256, None), "two threads write one element");
    }
}
