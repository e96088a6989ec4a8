"""Slips that the tests once let pass: `python -m tests.listed_mutations` makes each, and a test must fail by each.

A test is run where it is known to notice, so that all of them take about two CPU minutes.
"""

import sys
import tempfile
from pathlib import Path

from tests.mutate import Copy, _import_once

DETAILS = "tests/test_details.py::test_"
WINNER = f"{DETAILS}the_winner_is_the_candidate_that_ends_best_on_all_validation_images_class_by_class"
LEARN = f"{DETAILS}skips_and_the_parameters_of_the_attention_learn_in_every_task"
DEFAULTS = f"{DETAILS}the_defaults_are_the_papers"
BALANCED = f"{DETAILS}the_balanced_loss_counts_old_and_new_images"
TRAINED = "return {name: p for name, p in self.named_parameters() if p.requires_grad"
RPS, SELECTION, LAYERS = "methods/rps.py", "learning/selection.py", "network/layers.py"
BACKBONES, SATURATION, MEMORY = "network/backbones.py", "learning/saturation.py", "learning/memory.py"

LISTED: list[tuple[str, str, str, str, str]] = [  # what, file, before, after, test
    ("sets of 5 tensors", SATURATION, "SET_SIZE = 10", "SET_SIZE = 5",
     f"{DETAILS}early_and_final_are_ten_tensors_each"),
    ("mu_sat on images that are not normalised", SATURATION, "(augment.plain(x.to(device)), ",
     "(x.to(device).permute(0, 3, 1, 2).float() / 255, ", f"{DETAILS}mu_sat_by_a_plain_loop_over_normalised_images"),
    ("switch above the threshold", RPS, "mu_sat >= self.threshold", "mu_sat > self.threshold",
     f"{DETAILS}a_path_whose_mu_sat_is_just_the_threshold_is_switched"),
    ("task 1 draws one path", RPS, "paths = candidates(self.N, P_fixed, draw)",
     "paths = candidates(self.N if self.k else 1, P_fixed, draw)",
     f"{DETAILS}the_first_task_draws_n_paths_like_a_switch"),
    ("N = 4", RPS, '"candidates after a switch (section 4.1)"] = 8', '""] = 4', DEFAULTS),
    ("threshold = 2", RPS, '"switch when mu_sat is at least this"] = 0.0', '""] = 2.0', DEFAULTS),
    ("temperature = 1", RPS, '"t_e of the distillation"] = 2.0', '""] = 1.0', DEFAULTS),
    ("scored on P", SELECTION, "predict(lambda x: net(x, P_ts), job.val", "predict(lambda x: net(x, P), job.val",
     WINNER),
    ("scored on training images", SELECTION, "return mean_class_accuracy(job.val.labels, q.argmax(dim=1).numpy())",
     "q = predict(lambda x: net(x, P_ts), job.data, s.augment, device)\n"
     "        return mean_class_accuracy(job.data.labels, q.argmax(dim=1).numpy())", WINNER),
    ("scored on new classes", SELECTION, "return mean_class_accuracy(job.val.labels, q.argmax(dim=1).numpy())",
     "new = job.val.labels >= (teacher.num_classes if teacher is not None else 0)\n"
     "        return mean_class_accuracy(job.val.labels[new], q.argmax(dim=1).numpy()[new])", WINNER),
    ("scored by plain accuracy", SELECTION, "return mean_class_accuracy(job.val.labels, q.argmax(dim=1).numpy())",
     "return float((job.val.labels == q.argmax(dim=1).numpy()).mean())", WINNER),
    ("scored by the best epoch", SELECTION, 'epochs[-1]["validation"]',
     'max((e["validation"] for e in epochs), default=None) if len(job.val) else None', WINNER),
    ("skips frozen", LAYERS, TRAINED, f'{TRAINED} and ".skip." not in name', LEARN),
    ("attention A frozen", LAYERS, TRAINED, f'{TRAINED} and ".to_map." not in name', f"{LEARN}[conv]"),
    ("attention B frozen", LAYERS, TRAINED, f'{TRAINED} and ".to_weights." not in name', f"{LEARN}[channel]"),
    ("tau without gradient", LAYERS, "weights[m].reshape(", "weights[m].detach().reshape(",
     f"{DETAILS}the_weight_tau_of_a_module_has_a_gradient_too"),
    ("GeM in the ImageNet network", BACKBONES, "parts, GlobalMean(), inputs, positions)",
     "parts, GeM(3), inputs, positions)", f"{DETAILS}the_imagenet_network_is_the_standard_resnet18"),
    ("MLP of width 100", BACKBONES, "spec.width or 400", "spec.width or 100",
     f"{DETAILS}the_mlp_has_two_layers_of_400_neurons_and_a_skip_around_the_second"),
    ("MLP without the skip of layer 2", BACKBONES, "nn.Linear(width, width), nn.Identity)",
     "nn.Linear(width, width), None)",
     f"{DETAILS}the_mlp_has_two_layers_of_400_neurons_and_a_skip_around_the_second"),
    ("CIFAR width 32", BACKBONES, "    base = spec.width or 64\n    stem,", "    base = spec.width or 32\n    stem,",
     f"{DETAILS}the_cifar_network_has_the_papers_widths"),
    ("the first images as exemplars", MEMORY, 'rng(*key, "memory", c).permutation(len(own))', "np.arange(len(own))",
     f"{DETAILS}exemplars_are_drawn_at_random"),
    ("balanced softmax ignored in rps", RPS, "if self.balanced else None", "if False else None", BALANCED),
    ("counts of new images only in rps", RPS, "log_counts(data.labels,", "log_counts(task.train.labels,", BALANCED),
    ("balanced softmax ignored in rehearsal", "methods/rehearsal.py", "if self.balanced else None",
     "if False else None", BALANCED),
    ("counts of new images only in rehearsal", "methods/rehearsal.py", "log_counts(data.labels,",
     "log_counts(task.train.labels,", BALANCED),
]  # fmt: skip


def main() -> int:
    _import_once()
    survived, seconds = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder).resolve())
        sound = copy.run(sorted({test for *_, test in LISTED}), 600)
        if sound.result != "survived":
            print(f"without any slip {sound.by} fails")
            return 1
        for what, name, before, after, test in LISTED:
            file = f"src/randpath/{name}"
            text = (copy.folder / file).read_text()
            assert text.count(before) == 1, f"{what}: {file} has changed, {text.count(before)} places"
            outcome = copy.tried(file, text.replace(before, after), [test], 300)
            seconds += outcome.cpu_seconds
            print(f"{outcome.result:9} {outcome.cpu_seconds:5.1f} s  {what}: {outcome.by}", flush=True)
            survived += [what] * (outcome.result == "survived")
    print(f"{len(survived)} of {len(LISTED)} survived, {seconds:.0f} CPU s")
    return bool(survived)


if __name__ == "__main__":
    sys.exit(main())
