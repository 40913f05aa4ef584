"""Small models in files of ONNX, made by `onnx` and run by onnxruntime, which are independent of what the program uses."""

import numpy as np


def save(path, nodes, constants=(), inputs=(("features", ["N", None]),), outputs=("score",)):
    """Writes a model of these (operator, inputs, outputs, attributes)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    made = [helper.make_node(operator, into, out, **more) for operator, into, out, more in nodes]
    known = [numpy_helper.from_array(np.asarray(value, np.float32 if np.asarray(value).dtype.kind == "f" else None), name) for name, value in dict(constants).items()]
    declared = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)  # noqa: E731
    graph = helper.make_graph(made, "test", [declared(*one) for one in inputs], [declared(name, None) for name in outputs], known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def network(path, features, is_hit, hidden=8, steps=600):
    """A network of one hidden layer, trained on features (images, numbers) to tell hits."""
    rng = np.random.default_rng(5)
    mean, sigma = features.mean(0), features.std(0) + 1e-3
    x, y = (features - mean) / sigma, is_hit.astype(float)[:, None]
    weights = [rng.normal(0, 0.3, (x.shape[1], hidden)), np.zeros(hidden), rng.normal(0, 0.3, (hidden, 1)), np.zeros(1)]
    momenta = [np.zeros_like(weight) for weight in weights]
    for _ in range(steps):
        inner = np.maximum(x @ weights[0] + weights[1], 0)
        score = 1 / (1 + np.exp(-(inner @ weights[2] + weights[3])))
        back = (score - y) / len(x)
        into = (back @ weights[2].T) * (inner > 0)
        slopes = [x.T @ into, into.sum(0), inner.T @ back, back.sum(0)]
        momenta = [0.9 * momentum + slope + 1e-3 * weight for momentum, slope, weight in zip(momenta, slopes, weights)]
        weights = [weight - 0.1 * momentum for weight, momentum in zip(weights, momenta)]
    nodes = [
        ("Sub", ["features", "mean"], ["centred"], {}),
        ("Div", ["centred", "sigma"], ["normal"], {}),
        ("Gemm", ["normal", "w1", "b1"], ["sums"], {}),
        ("Relu", ["sums"], ["inner"], {}),
        ("Gemm", ["inner", "w2", "b2"], ["logit"], {}),
        ("Sigmoid", ["logit"], ["score"], {}),
    ]
    return save(path, nodes, {"mean": mean, "sigma": sigma, "w1": weights[0], "b1": weights[1], "w2": weights[2], "b2": weights[3]})


def by_onnxruntime(path, features):
    """The scores of these features (images, numbers), float32."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["score"], {"features": row[None].astype(np.float32)})[0].ravel() for row in features])
